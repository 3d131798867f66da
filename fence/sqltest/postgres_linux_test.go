package sqltest

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
	"github.com/quorumlock/redlock/internal/required"
)

// startPostgres starts a server. It listens on a unix socket and on no port, so nobody can take its port, and nobody
// else can connect.
func startPostgres(t *testing.T) *sql.DB {
	postgres, err := find("postgres", "/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		required.Missing(t, "postgres", fmt.Errorf("no PostgreSQL: %w; install it (Debian: apt-get install postgresql)", err))
	}
	if real, err := filepath.EvalSymlinks(postgres); err == nil {
		postgres = real // initdb is beside it
	}
	h := newHome(t)
	data := filepath.Join(h.dir, "data")
	h.run(t, filepath.Join(filepath.Dir(postgres), "initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--no-sync",
		"--encoding=UTF8", "--locale=C")
	dead := h.serve(t, postgres, "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+h.dir,
		"-c", "fsync=off", "-c", "shared_buffers=16MB")
	db, err := sql.Open("pgx", "host="+h.dir+" user=postgres dbname=postgres")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	h.awaitReady(t, db, dead)
	return db
}

func TestPostgres(t *testing.T) {
	d := database{
		db:      startPostgres(t),
		table:   fence.Table{Dialect: fence.Postgres, Name: "public.redlock_fence"},
		waiting: "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'",
		again: func(err error) bool {
			var refused *pgconn.PgError // serialization_failure, deadlock_detected
			return errors.As(err, &refused) && (refused.Code == "40001" || refused.Code == "40P01")
		},
		conflicts: func(level sql.IsolationLevel) expectation {
			if level >= sql.LevelRepeatableRead {
				return always
			}
			return never
		},
	}
	d.test(t)
}
