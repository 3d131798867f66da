package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
)

// SQLite has one writer at a time, and one isolation level. Who comes second waits for the busy timeout, and is then
// told SQLITE_BUSY. The scenarios below have no timeout, so that nothing waits.
func TestSQLite(t *testing.T) {
	for _, journal := range []string{"WAL", "DELETE"} {
		file := filepath.Join(t.TempDir(), "db")
		open := func(timeout time.Duration) database {
			db, err := sql.Open("sqlite3", fmt.Sprintf("file:%s?_journal_mode=%s&_busy_timeout=%d", file, journal, timeout.Milliseconds()))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			return database{
				db:    db,
				table: fence.Table{Dialect: fence.SQLite, Name: "main.redlock_fence"},
				again: func(err error) bool {
					var refused sqlite3.Error
					return errors.As(err, &refused) && refused.Code == sqlite3.ErrBusy
				},
			}
		}
		patient, impatient := open(time.Minute), open(0)
		patient.create(t)
		for _, known := range []bool{false, true} {
			run := func(name string, d *database, scenario func(*trial)) {
				t.Run(fmt.Sprintf("%s/%s/known=%v", journal, name, known), func(t *testing.T) {
					scenario(d.trial(t, sql.LevelDefault, known))
				})
			}
			run("a stale holder that began first is refused", &impatient, (*trial).staleBeganFirst)
			run("a stale holder comes while a newer one works", &impatient, (*trial).busyForStale)
			run("a newer holder comes while an older one works", &impatient, (*trial).busyForNewer)
			run("a stale holder has read before", &impatient, map[string]func(*trial){
				"WAL": (*trial).staleHasReadWAL, "DELETE": (*trial).staleHasReadDelete}[journal])
			run("who goes on after an interrupt writes without a transaction", &impatient, (*trial).goesOnAfterInterrupt)
			run("one holder writes many times", &impatient, (*trial).equalTokens)
			run("many holders at once", &patient, (*trial).contention)
		}
		t.Run(journal+"/names", impatient.names)
	}
}

// requireBusy wants that the database has refused the transaction, and ends it.
func (w *trial) requireBusy(tx *sql.Tx, err error) {
	w.Helper()
	require.True(w, w.again(err), "%v", err)
	require.NotErrorIs(w, err, fence.ErrStale)
	require.NoError(w, tx.Rollback())
}

func (w *trial) busyForStale() {
	newer, stale := w.begin(), w.begin()
	require.NoError(w, w.check(newer, 34))
	w.requireBusy(stale, w.check(stale, 33))
	w.write(newer, 34)
	require.NoError(w, newer.Commit())
	stale = w.begin()
	w.requireStale(stale, w.check(stale, 33))
	w.requireFinal(34)
}

func (w *trial) busyForNewer() {
	older, newer := w.begin(), w.begin()
	require.NoError(w, w.check(older, 33))
	w.requireBusy(newer, w.check(newer, 34))
	w.write(older, 33)
	require.NoError(w, older.Commit())
	newer = w.begin()
	require.NoError(w, w.check(newer, 34))
	require.Equal(w, 33, w.read(newer))
	require.NoError(w, newer.Commit())
	stale := w.begin()
	w.requireStale(stale, w.check(stale, 33))
}

// In WAL mode a reader does not keep a writer waiting. It cannot become a writer when there is something newer.
func (w *trial) staleHasReadWAL() {
	stale, newer := w.begin(), w.begin()
	require.Equal(w, 0, w.read(stale))
	require.NoError(w, w.check(newer, 34))
	w.write(newer, 34)
	require.NoError(w, newer.Commit())
	err := w.check(stale, 33)
	var refused sqlite3.Error
	require.ErrorAs(w, err, &refused)
	require.Equal(w, sqlite3.ErrBusySnapshot, refused.ExtendedCode)
	w.requireBusy(stale, err)
	stale = w.begin()
	w.requireStale(stale, w.check(stale, 33))
	w.requireFinal(34)
}

// Without WAL, the writer cannot commit before the reader has ended.
func (w *trial) staleHasReadDelete() {
	stale, newer := w.begin(), w.begin()
	require.Equal(w, 0, w.read(stale))
	require.NoError(w, w.check(newer, 34))
	w.write(newer, 34)
	w.requireBusy(stale, w.check(stale, 33))
	require.NoError(w, newer.Commit())
	stale = w.begin()
	w.requireStale(stale, w.check(stale, 33))
	w.requireFinal(34)
}

// goesOnAfterInterrupt shows why a transaction is over after an error.
func (w *trial) goesOnAfterInterrupt() {
	stale := w.begin()
	require.NoError(w, w.check(stale, 33))
	for timeout := 20 * time.Millisecond; ; timeout *= 2 {
		ctx, cancel := context.WithTimeout(w.Context(), timeout)
		_, err := stale.ExecContext(ctx,
			"INSERT INTO other WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n")
		cancel()
		require.ErrorIs(w, err, context.DeadlineExceeded)
		newer := w.begin()
		if err := w.check(newer, 34); w.again(err) { // ctx has ended before the statement began
			require.NoError(w, newer.Rollback())
			continue
		}
		w.write(newer, 34)
		require.NoError(w, newer.Commit())
		break
	}
	w.write(stale, 33)
	w.requireFinal(33)
}

// With this pragma, the driver returns the count of the statement before.
func TestTheCountOfSQLiteDecidesNothing(t *testing.T) {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(t.Context(), "PRAGMA count_changes = ON")
	require.NoError(t, err)
	table := fence.Table{Dialect: fence.SQLite}
	require.NoError(t, table.Create(t.Context(), db))
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	for range 2 {
		require.NoError(t, table.Check(t.Context(), tx, "file", 34))
		require.ErrorIs(t, table.Check(t.Context(), tx, "file", 33), fence.ErrStale)
	}
}
