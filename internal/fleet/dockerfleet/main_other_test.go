//go:build unix && !linux

package dockerfleet_test

import "testing"

func TestMain(m *testing.M) { verifyNoLeak(m) }
