//go:build !linux

package sqltest

import (
	"errors"
	"testing"

	"github.com/quorumlock/redlock/internal/required"
)

// The tests start their servers with means that only Linux has.
var errNotLinux = errors.New("the servers for these tests are started on Linux only")

func TestPostgres(t *testing.T) { required.Missing(t, "postgres", errNotLinux) }
func TestMariaDB(t *testing.T)  { required.Missing(t, "mariadb", errNotLinux) }
