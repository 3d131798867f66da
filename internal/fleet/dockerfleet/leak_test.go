//go:build unix

package dockerfleet_test

import (
	"testing"

	"go.uber.org/goleak"
)

func verifyNoLeak(m *testing.M) { goleak.VerifyTestMain(m) }
