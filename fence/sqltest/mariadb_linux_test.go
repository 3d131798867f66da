package sqltest

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
	"github.com/quorumlock/redlock/internal/dbserver"
	"github.com/quorumlock/redlock/internal/required"
)

// A mariaDB is a running server.
type mariaDB struct {
	home   *dbserver.Home
	socket string
}

// startMariaDB starts a server. It listens on a unix socket and on no port. It has no users, and needs none.
func startMariaDB(t *testing.T) *mariaDB {
	server, err := dbserver.Find("mariadbd", "/usr/sbin/mariadbd", "/usr/libexec/mariadbd")
	if err != nil {
		required.Missing(t, "mariadb", fmt.Errorf("no MariaDB: %w; install it (Debian: apt-get install mariadb-server-core)", err))
	}
	h := dbserver.NewHome(t)
	data := filepath.Join(h.Dir, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	if h.User != nil {
		require.NoError(t, os.Chown(data, int(h.User.Uid), int(h.User.Gid)))
	}
	m := &mariaDB{h, filepath.Join(h.Dir, "socket")}
	dead := h.Serve(t, server, "--no-defaults", "--datadir="+data, "--tmpdir="+h.Dir, "--socket="+m.socket,
		"--pid-file="+filepath.Join(h.Dir, "pid"), "--skip-networking", "--skip-grant-tables",
		"--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0",
		"--innodb-use-native-aio=0")
	db := m.open(t, "")
	h.AwaitReady(t, db, dead)
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE test")
	require.NoError(t, err)
	return m
}

// open connects to a database; "" is none.
func (m *mariaDB) open(t *testing.T, name string, options ...func(*mysql.Config)) *sql.DB {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "unix", m.socket, name
	config.Logger = &mysql.NopLogger{} // it tells of each attempt while the server starts
	for _, option := range options {
		option(config)
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestMariaDB(t *testing.T) {
	server := startMariaDB(t)
	d := database{
		db:    server.open(t, "test"),
		table: fence.Table{Dialect: fence.MySQL, Name: "test.redlock_fence"},
		// Not from INNODB_TRX: it shows what was when it had not been read for 0.1 s, so nothing new to one who polls.
		waiting: "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_row_lock_current_waits'",
		limit:   "SET SESSION wait_timeout = 1",
		again: func(err error) bool {
			var refused *mysql.MySQLError // ER_LOCK_DEADLOCK, ER_CHECKREAD
			return errors.As(err, &refused) && (refused.Number == 1213 || refused.Number == 1020)
		},
		conflicts: func(sql.IsolationLevel) expectation { return never },
	}
	t.Run("rows that change are counted", d.test)
	requireSecondUpdate(t, d.db, 0)
	t.Run("who reads before Check reads old data", func(t *testing.T) {
		d.trial(t, sql.LevelRepeatableRead, true).readsBeforeCheck()
	})
	t.Run("who goes on after a deadlock writes without a transaction", func(t *testing.T) {
		d.trial(t, sql.LevelDefault, true).goesOnAfterDeadlock()
	})
	t.Run("who goes on after an implicit commit writes without a transaction", func(t *testing.T) {
		d.trial(t, sql.LevelDefault, true).goesOnAfterImplicitCommit()
	})

	d.db = server.open(t, "test", func(c *mysql.Config) { c.ClientFoundRows = true })
	t.Run("rows that are found are counted", d.test)
	requireSecondUpdate(t, d.db, 1)

	// From MariaDB 11.6.2 on, this is the default.
	d.db = server.open(t, "test", func(c *mysql.Config) { c.Params = map[string]string{"innodb_snapshot_isolation": "ON"} })
	d.conflicts = func(sql.IsolationLevel) expectation { return sometimes }
	t.Run("a snapshot is not written over", d.test)
}

// MySQL converts text from the client's character set to the connection's. A name must not become another one, nor two
// names the same: latin1 has ?? for 日本 and for 中国.
func TestANameIsTheSameInAllCharacterSetsOfMySQL(t *testing.T) {
	server := startMariaDB(t)
	table := fence.Table{Dialect: fence.MySQL}
	check := func(db *sql.DB, name string, token int) error {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if err := table.Check(t.Context(), tx, name, uint64(token)); err != nil {
			return err
		}
		return tx.Commit()
	}
	db := server.open(t, "test")
	require.NoError(t, table.Create(t.Context(), db))
	names := []string{"café", "日本", "中国", "caf\xe9", "\xff", "a\x00b"}
	for i, name := range names {
		require.NoError(t, check(db, name, 1000-i), "%q", name)
	}
	for _, variable := range []string{"character_set_connection", "character_set_client"} {
		for _, interpolate := range []bool{false, true} {
			other := server.open(t, "test", func(c *mysql.Config) {
				c.Params, c.InterpolateParams = map[string]string{variable: "latin1"}, interpolate
			})
			for i, name := range names {
				require.ErrorIs(t, check(other, name, 999-i), fence.ErrStale, "%s %q", variable, name)
				require.NoError(t, check(other, name, 1000-i), "%s %q", variable, name)
			}
		}
	}
}

// readsBeforeCheck shows why Check comes first: no error tells that the data are old.
func (w *trial) readsBeforeCheck() {
	newer, older := w.begin(), w.begin()
	require.Equal(w, 0, w.read(newer))
	require.NoError(w, w.check(older, 33))
	w.write(older, 33)
	require.NoError(w, older.Commit())
	require.NoError(w, w.check(newer, 34))
	require.Equal(w, 0, w.read(newer))
	w.requireFinal(33)
	require.NoError(w, newer.Rollback())
}

// goesOnAfterDeadlock shows why a transaction is over after an error.
func (w *trial) goesOnAfterDeadlock() {
	newer, stale := w.begin(), w.begin()
	require.NoError(w, w.check(stale, 33))
	for value := range 10 { // the one that has written less is ended
		w.write(newer, value)
	}
	result := w.checkLater(newer, 34)
	_, err := stale.Exec(fmt.Sprintf("UPDATE data SET value = 33 WHERE id = %d", w.row))
	require.True(w, w.again(err), "%v", err)
	require.NoError(w, <-result)
	w.write(newer, 34)
	require.NoError(w, newer.Commit())
	w.write(stale, 33)
	w.requireFinal(33)
	require.NoError(w, stale.Commit())
}

// goesOnAfterImplicitCommit shows that statements which commit end what Check began.
func (w *trial) goesOnAfterImplicitCommit() {
	newer, stale := w.begin(), w.begin()
	require.NoError(w, w.check(stale, 33))
	_, err := stale.Exec("CREATE TABLE IF NOT EXISTS other (id int PRIMARY KEY)")
	require.NoError(w, err)
	require.NoError(w, w.check(newer, 34))
	w.write(newer, 34)
	require.NoError(w, newer.Commit())
	w.write(stale, 33)
	w.requireFinal(33)
	require.NoError(w, stale.Commit())
}

// requireSecondUpdate writes the same twice, with the token in the row, and looks at the second count. It is why the
// package documentation names clientFoundRows.
func requireSecondUpdate(t *testing.T, db *sql.DB, want int64) {
	_, err := db.ExecContext(t.Context(), "REPLACE INTO data (id, value, fence) VALUES (0, 0, 0)")
	require.NoError(t, err)
	for _, want := range []int64{1, want} {
		result, err := db.ExecContext(t.Context(), "UPDATE data SET value = 7, fence = 34 WHERE id = 0 AND fence <= 34")
		require.NoError(t, err)
		rows, err := result.RowsAffected()
		require.NoError(t, err)
		require.Equal(t, want, rows)
	}
}
