//go:build unix && !linux

package fleet_test

import "testing"

func TestMain(m *testing.M) { verifyNoLeak(m) }
