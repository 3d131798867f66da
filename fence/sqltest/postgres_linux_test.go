package sqltest

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
	"github.com/quorumlock/redlock/internal/dbserver"
)

func startPostgres(t *testing.T) *sql.DB {
	h, source, dead := dbserver.Postgres(t)
	db, err := sql.Open("pgx", source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	h.AwaitReady(t, db, dead)
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
