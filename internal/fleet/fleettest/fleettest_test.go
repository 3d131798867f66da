package fleettest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// verdict records whether a test would have been skipped or failed.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Helper()                          {}
func (v *verdict) Skipf(format string, args ...any) { v.skipped = fmt.Sprintf(format, args...) }
func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	panic(v)
}

func judge(t *testing.T, kind fleet.Kind) (v *verdict) {
	v = &verdict{TB: t}
	defer func() { _ = recover() }()
	fleettest.Require(v, kind)
	return v
}

func TestAMissingFleetIsSkippedUnlessItIsRequired(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv(fleet.ServerVariable, "")
	for name, kind := range map[string]struct {
		fleet.Kind
		remedy string
	}{
		"redis":  {fleet.Process, "install"},
		"docker": {fleet.Docker, "import"}, // package dockerfleet, which says what to install
	} {
		for _, require := range []string{"", "other", name, "other, " + name} {
			t.Setenv("REDLOCK_REQUIRE", require)
			v := judge(t, kind.Kind)
			if require == "" || require == "other" {
				assert.Contains(t, v.skipped, "NOT TESTED")
				assert.Contains(t, v.skipped, kind.remedy)
				assert.Empty(t, v.failed)
			} else {
				assert.Contains(t, v.failed, name)
				assert.Contains(t, v.failed, kind.remedy)
			}
		}
	}
	t.Setenv("REDLOCK_REQUIRE", "redis,docker")
	v := judge(t, fleet.Embedded)
	assert.Empty(t, v.skipped+v.failed)
}
