//go:build unix

package fleet_test

import (
	"testing"

	"go.uber.org/goleak"
)

func verifyNoLeak(m *testing.M) { goleak.VerifyTestMain(m) }
