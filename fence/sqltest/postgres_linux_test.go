package sqltest

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
	"github.com/quorumlock/redlock/internal/dbserver"
)

func startPostgres(t *testing.T) *sql.DB {
	db, _ := startPostgresAt(t)
	return db
}

// startPostgresAt returns the data source name too.
func startPostgresAt(t *testing.T) (db *sql.DB, source string) {
	h, source, dead := dbserver.Postgres(t)
	db, err := sql.Open("pgx", source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	h.AwaitReady(t, db, dead)
	return db, source
}

func TestPostgres(t *testing.T) {
	d := database{
		db:      startPostgres(t),
		table:   fence.Table{Dialect: fence.Postgres, Name: "public.redlock_fence"},
		waiting: "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'",
		limit:   "SET LOCAL idle_in_transaction_session_timeout = '100ms'",
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
	t.Run("a savepoint from before Check undoes it", func(t *testing.T) {
		d.trial(t, sql.LevelReadCommitted, true).savepoint()
	})
}

// savepoint shows why Check comes before any savepoint.
func (w *trial) savepoint() {
	newer, stale := w.begin(), w.begin()
	exec := func(statement string) {
		_, err := newer.Exec(statement)
		require.NoError(w, err)
	}
	exec("SAVEPOINT before")
	require.NoError(w, w.check(newer, 34))
	exec("SAVEPOINT behind")
	w.write(newer, 34)
	exec("ROLLBACK TO SAVEPOINT behind")
	result := w.checkLater(stale, 33)
	exec("ROLLBACK TO SAVEPOINT before")
	require.NoError(w, <-result)
	w.write(stale, 33)
	require.NoError(w, stale.Commit())
	require.NoError(w, newer.Commit())
	w.requireFinal(33)
}

// Any other order may change with the C library or ICU. Then the index does not find the row of a name.
func TestTheIndexOfNamesInPostgresHasTheOrderOfBytes(t *testing.T) {
	db := startPostgres(t)
	table := fence.Table{Dialect: fence.Postgres, Name: "redlock_fence"}
	for _, statements := range [][]string{
		nil,
		{ // how to change a table that was made without it
			"DROP TABLE redlock_fence",
			"CREATE TABLE redlock_fence (resource text PRIMARY KEY, token bigint NOT NULL)",
			"INSERT INTO redlock_fence VALUES ('invoice/42', 34)",
			`ALTER TABLE redlock_fence ALTER COLUMN resource TYPE text COLLATE "C"`,
		},
	} {
		for _, statement := range statements {
			_, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		require.NoError(t, table.Create(t.Context(), db))
		var collation string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT collname FROM pg_index "+
			"JOIN pg_collation c ON c.oid = indcollation[0] WHERE indrelid = 'redlock_fence'::regclass").Scan(&collation))
		require.Equal(t, "C", collation)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.ErrorIs(t, table.Check(t.Context(), tx, "invoice/42", 33), fence.ErrStale)
}

// Why Table.Name says that a name without a schema can be several tables.
func TestANameWithoutASchemaIsATableForEachSearchPathOfPostgres(t *testing.T) {
	db, source := startPostgresAt(t)
	open := func(schema string) *sql.DB {
		_, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+schema)
		require.NoError(t, err)
		own, err := sql.Open("pgx", source+" search_path="+schema+",public")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, own.Close()) })
		return own
	}
	check := func(db *sql.DB, table fence.Table, token uint64) error {
		require.NoError(t, table.Create(t.Context(), db))
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if err := table.Check(t.Context(), tx, "invoice/42", token); err != nil {
			return err
		}
		return tx.Commit()
	}
	one, two := open("one"), open("two")
	anywhere, public := fence.Table{Dialect: fence.Postgres}, fence.Table{Dialect: fence.Postgres, Name: "public.redlock_fence"}
	require.NoError(t, check(one, anywhere, 34))
	require.NoError(t, check(two, anywhere, 33), "it is another table")
	require.NoError(t, check(one, public, 34))
	require.ErrorIs(t, check(two, public, 33), fence.ErrStale)
}

// PostgreSQL takes text for that of the connection's client_encoding. A name must be the same row for all, in a database of
// any encoding.
func TestANameIsTheSameInAllEncodingsOfPostgres(t *testing.T) {
	db, source := startPostgresAt(t)
	for _, statement := range []string{
		"CREATE ROLE legacy LOGIN SUPERUSER",
		"ALTER ROLE legacy SET client_encoding = 'LATIN1'",
		"CREATE DATABASE latin1 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
		"CREATE DATABASE bytes ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	table := fence.Table{Dialect: fence.Postgres}
	check := func(on, name string, token uint64) error {
		db, err := sql.Open("pgx", on)
		require.NoError(t, err)
		defer db.Close()
		require.NoError(t, table.Create(t.Context(), db))
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if err := table.Check(t.Context(), tx, name, token); err != nil {
			return err
		}
		return tx.Commit()
	}
	for _, database := range []string{"postgres", "latin1", "bytes"} {
		source := strings.Replace(source, "dbname=postgres", "dbname="+database, 1)
		require.Contains(t, source, "dbname="+database)
		for i, name := range []string{"café", "kunde/Müller", "plain"} {
			token := uint64(1000 * (i + 1))
			require.NoError(t, check(source+" client_encoding=UTF8", name, token))
			for _, as := range []string{"", " client_encoding=LATIN1", " client_encoding=SQL_ASCII", " user=legacy"} {
				require.ErrorIs(t, check(source+as, name, token-1), fence.ErrStale, "%s%s %q", database, as, name)
				require.NoError(t, check(source+as, name, token), "%s%s %q", database, as, name)
			}
		}
	}
	err := check(strings.Replace(source, "dbname=postgres", "dbname=latin1", 1), "日本", 1)
	require.ErrorContains(t, err, "has no equivalent in encoding")
	require.NotErrorIs(t, err, fence.ErrStale)
}
