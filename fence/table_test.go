package fence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
)

// The tests on real databases are in sqltest. These are of what no database does on demand.

// A fakeDB is a database that answers as it was told, and records what it is asked.
type fakeDB struct {
	rows    int64 // what an INSERT says it has affected
	highest int64 // what a SELECT returns
	err     map[string]error
	asked   []string
}

func (f *fakeDB) open(t *testing.T) *sql.DB {
	db := sql.OpenDB(f)
	t.Cleanup(func() { db.Close() })
	return db
}

func (f *fakeDB) answer(query string, args []driver.NamedValue) error {
	for _, arg := range args {
		query += fmt.Sprintf(" [%v]", arg.Value)
	}
	f.asked = append(f.asked, query)
	verb, _, _ := strings.Cut(query, " ")
	return f.err[verb]
}

func (f *fakeDB) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f *fakeDB) Driver() driver.Driver                        { return nil }
func (f *fakeDB) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("not needed") }
func (f *fakeDB) Close() error                                 { return nil }
func (f *fakeDB) Begin() (driver.Tx, error)                    { return f, nil }
func (f *fakeDB) Commit() error                                { return nil }
func (f *fakeDB) Rollback() error                              { return nil }

func (f *fakeDB) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return f, f.answer(query, args)
}

func (f *fakeDB) LastInsertId() (int64, error) { return 0, errors.New("not needed") }
func (f *fakeDB) RowsAffected() (int64, error) { return f.rows, f.err["rows"] }

func (f *fakeDB) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return &fakeRows{value: f.highest}, f.answer(query, args)
}

// fakeRows is one row with one column.
type fakeRows struct {
	value int64
	read  bool
}

func (r *fakeRows) Columns() []string { return []string{"token"} }
func (r *fakeRows) Close() error      { return nil }
func (r *fakeRows) Next(to []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, to[0] = true, r.value
	return nil
}

func (f *fakeDB) check(t *testing.T, table fence.Table, resource string, token uint64) error {
	db := f.open(t)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	return table.Check(t.Context(), tx, resource, token)
}

func TestEachDialectHasItsSQL(t *testing.T) {
	for _, test := range []struct {
		table fence.Table
		ddl   string
		asked []string // when the token is stale
	}{
		{
			fence.Table{Dialect: fence.Postgres},
			`CREATE TABLE IF NOT EXISTS redlock_fence (resource text COLLATE "C" PRIMARY KEY, token bigint NOT NULL)`,
			[]string{
				"INSERT INTO redlock_fence AS stored (resource, token) VALUES (convert_from(decode($1, 'hex'), 'UTF8'), $2)" +
					" ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE stored.token <= excluded.token [66696c65] [33]",
				"SELECT token FROM redlock_fence WHERE resource = convert_from(decode($1, 'hex'), 'UTF8') [66696c65]",
			},
		},
		{
			fence.Table{Dialect: fence.MySQL, Name: "locks.token"},
			"CREATE TABLE IF NOT EXISTS locks.token (resource VARBINARY(1024) NOT NULL PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB",
			[]string{
				"INSERT INTO locks.token (resource, token) VALUES (UNHEX(?), ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, ?) [66696c65] [33] [33]",
				"SELECT token FROM locks.token WHERE resource = UNHEX(?) FOR UPDATE [66696c65]",
			},
		},
		{
			fence.Table{Dialect: fence.SQLite, Name: "Token_2"},
			"CREATE TABLE IF NOT EXISTS Token_2 (resource TEXT PRIMARY KEY NOT NULL, token INTEGER NOT NULL) WITHOUT ROWID",
			[]string{
				"INSERT INTO Token_2 AS stored (resource, token) VALUES (?, ?) ON CONFLICT (resource)" +
					" DO UPDATE SET token = excluded.token WHERE stored.token <= excluded.token [file] [33]",
				"SELECT token FROM Token_2 WHERE resource = ? [file]",
			},
		},
	} {
		db := &fakeDB{highest: 34}
		requireStale(t, db.check(t, test.table, "file", 33), "file", 33, 34)
		require.Equal(t, test.asked, db.asked)
		ddl, err := test.table.DDL()
		require.NoError(t, err)
		require.Equal(t, test.ddl, ddl)
		require.NoError(t, test.table.Create(t.Context(), db.open(t)))
		require.Equal(t, ddl, db.asked[len(db.asked)-1])
	}
}

func TestACheckThatPassesAsksOnceWhereRowsCanBeCounted(t *testing.T) {
	for dialect, asked := range map[fence.Dialect]int{fence.Postgres: 1, fence.SQLite: 2, fence.MySQL: 2} {
		db := &fakeDB{rows: 1, highest: 33}
		require.NoError(t, db.check(t, fence.Table{Dialect: dialect}, "file", 33))
		require.Len(t, db.asked, asked)
	}
}

// MySQL's count is 0 for an equal token and for a stale one, or 1 for both. That of SQLite can be of the statement before.
// So they decide nothing.
func TestTheCountOfMySQLAndSQLiteDecidesNothing(t *testing.T) {
	for _, dialect := range []fence.Dialect{fence.MySQL, fence.SQLite} {
		for _, rows := range []int64{0, 1, 2} {
			db := &fakeDB{rows: rows, highest: 34, err: map[string]error{"rows": errors.New("not asked")}}
			require.NoError(t, db.check(t, fence.Table{Dialect: dialect}, "file", 34))
			requireStale(t, db.check(t, fence.Table{Dialect: dialect}, "file", 33), "file", 33, 34)
		}
	}
}

func TestACheckThatCannotBeDoneFails(t *testing.T) {
	broken := errors.New("broken")
	for _, dialect := range []fence.Dialect{fence.Postgres, fence.MySQL, fence.SQLite} {
		for _, step := range []string{"INSERT", "rows", "SELECT"} {
			if dialect != fence.Postgres && step == "rows" {
				continue // not asked
			}
			db := &fakeDB{highest: 33, err: map[string]error{step: broken}}
			err := db.check(t, fence.Table{Dialect: dialect}, "file", 33)
			require.ErrorIs(t, err, broken, "%v %s", dialect, step)
			require.NotErrorIs(t, err, fence.ErrStale)
		}
		db := &fakeDB{highest: 32} // something has changed what was to be stored
		require.ErrorContains(t, db.check(t, fence.Table{Dialect: dialect}, "file", 33), "has not stored 33, it has 32")
		require.ErrorIs(t, fence.Table{Dialect: dialect}.Create(t.Context(), (&fakeDB{err: map[string]error{"CREATE": broken}}).open(t)), broken)
	}
}

func TestAWrongTableIsRefusedBeforeTheDatabaseIsAsked(t *testing.T) {
	long := strings.Repeat("x", 64)
	tables := []fence.Table{{}, {Name: "redlock_fence"}, {Dialect: fence.SQLite + 1}}
	for _, name := range []string{"a b", "a;b", `"a"`, "a.b.c", ".a", "a.", "1a", "tokén", "a\n", "a--", "a%s", long, long + ".a"} {
		tables = append(tables, fence.Table{Dialect: fence.Postgres, Name: name})
	}
	db := &fakeDB{}
	for _, table := range tables {
		require.ErrorIs(t, db.check(t, table, "file", 33), fence.ErrInvalid, "%v", table)
		require.ErrorIs(t, table.Create(t.Context(), db.open(t)), fence.ErrInvalid, "%v", table)
		ddl, err := table.DDL()
		require.ErrorIs(t, err, fence.ErrInvalid, "%v", table)
		require.Empty(t, ddl)
	}
	for _, token := range wrongTokens {
		require.ErrorIs(t, db.check(t, fence.Table{Dialect: fence.Postgres}, "file", token), fence.ErrInvalid)
	}
	err := db.check(t, fence.Table{Dialect: fence.MySQL}, strings.Repeat("x", 1025), 33)
	require.ErrorIs(t, err, fence.ErrInvalid, "MySQL would truncate it")
	require.Empty(t, db.asked)
}
