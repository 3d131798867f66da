package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
)

// A database is one under test, with what is different about it.
type database struct {
	db      *sql.DB
	table   fence.Table
	waiting string           // SQL: how many transactions wait for another
	limit   string           // SQL: the transaction is rolled back when it has been idle for so long
	again   func(error) bool // the error says that the transaction is to be run again
	// conflicts says if that error ends a transaction which has waited for the commit of another, or whose snapshot is
	// older than this commit.
	conflicts func(sql.IsolationLevel) expectation
}

type expectation int

const (
	never expectation = iota
	always
	sometimes
)

var levels = []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// A trial is one scenario at one isolation level. It has a resource and a row of its own.
type trial struct {
	*database
	*testing.T
	level    sql.IsolationLevel
	resource string
	row      int
}

var lastRow atomic.Int32 // numbers the rows

// trial makes a trial. known: the table has the resource already.
func (d *database) trial(t *testing.T, level sql.IsolationLevel, known bool) *trial {
	w := &trial{d, t, level, t.Name(), int(lastRow.Add(1))}
	_, err := w.db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO data (id, value, fence) VALUES (%d, 0, 0)", w.row))
	require.NoError(w, err)
	if known {
		tx := w.begin()
		require.NoError(t, w.check(tx, 1))
		require.NoError(t, tx.Commit())
	}
	return w
}

// Each scenario is run with a resource that is new to the table, and with one that it knows.
var scenarios = []struct {
	name string
	run  func(*trial)
}{
	{"a stale holder waits for the newer one and is refused", (*trial).staleWaits},
	{"a newer holder waits for the older one and sees what it wrote", (*trial).newerWaits},
	{"a stale holder that began first is refused", (*trial).staleBeganFirst},
	{"a stale holder whose snapshot is older is refused", (*trial).staleHasOlderSnapshot},
	{"a transaction that is rolled back leaves no token", (*trial).rollback},
	{"the context ends the wait", (*trial).contextEnds},
	{"one holder writes many times", (*trial).equalTokens},
	{"a column in the row does it too", (*trial).inRow},
	{"many holders at once", (*trial).contention},
}

func (d *database) test(t *testing.T) {
	d.create(t)
	for _, level := range levels {
		for _, scenario := range scenarios {
			for _, known := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%s/known=%v", level, scenario.name, known), func(t *testing.T) {
					scenario.run(d.trial(t, level, known))
				})
			}
		}
	}
	t.Run("a limit ends a holder that is paused in its transaction", func(t *testing.T) {
		d.trial(t, sql.LevelDefault, true).pausedInside()
	})
	t.Run("names", d.names)
}

// create creates the tables, from many connections at once, as when several processes start.
func (d *database) create(t *testing.T) {
	_, err := d.db.ExecContext(t.Context(), "DROP TABLE IF EXISTS "+d.table.Name)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, d.table.Create(t.Context(), d.db)) })
	}
	wg.Wait()
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS data (id int PRIMARY KEY, value bigint NOT NULL, fence bigint NOT NULL)",
		"CREATE TABLE IF NOT EXISTS other (id int PRIMARY KEY)",
		"CREATE TABLE IF NOT EXISTS log (id int, value bigint, token bigint)",
	} {
		_, err := d.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

// begin begins a transaction, which is rolled back at the end if it is not over.
func (w *trial) begin() *sql.Tx {
	w.Helper()
	tx, err := w.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: w.level})
	require.NoError(w, err)
	w.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (w *trial) check(tx *sql.Tx, token uint64) error {
	return w.table.Check(context.Background(), tx, w.resource, token)
}

// checkLater calls Check, and returns when it waits for another transaction.
func (w *trial) checkLater(tx *sql.Tx, token uint64) <-chan error {
	w.Helper()
	result := make(chan error, 1)
	go func() { result <- w.check(tx, token) }()
	w.awaitWaiting()
	return result
}

func (w *trial) awaitWaiting() {
	w.Helper()
	require.Eventually(w, func() bool {
		var n int
		return w.db.QueryRow(w.waiting).Scan(&n) == nil && n == 1
	}, time.Minute, 5*time.Millisecond)
}

func (w *trial) write(tx *sql.Tx, value int) {
	w.Helper()
	_, err := tx.Exec(fmt.Sprintf("UPDATE data SET value = %d WHERE id = %d", value, w.row))
	require.NoError(w, err)
}

func (w *trial) read(tx *sql.Tx) (value int) {
	w.Helper()
	require.NoError(w, tx.QueryRow(fmt.Sprintf("SELECT value FROM data WHERE id = %d", w.row)).Scan(&value))
	return value
}

// requireFinal looks at what is there when all is done.
func (w *trial) requireFinal(value int) {
	w.Helper()
	tx := w.begin()
	require.Equal(w, value, w.read(tx))
	require.NoError(w, tx.Rollback())
}

// rerun takes a transaction that got this error although it should wait, or should refuse. If the database asks for it,
// it runs the transaction again. It returns the transaction that counts, and its error.
func (w *trial) rerun(tx *sql.Tx, err error, token uint64) (*sql.Tx, error) {
	w.Helper()
	if expected := w.conflicts(w.level); expected != sometimes {
		require.Equal(w, expected == always, w.again(err), "%v", err)
	}
	if !w.again(err) {
		return tx, err
	}
	require.NotErrorIs(w, err, fence.ErrStale)
	require.NoError(w, tx.Rollback())
	tx = w.begin()
	return tx, w.check(tx, token)
}

// requireStale wants that Check has refused 33 because of 34.
func (w *trial) requireStale(tx *sql.Tx, err error) {
	w.Helper()
	var stale *fence.StaleError
	require.ErrorAs(w, err, &stale)
	require.Equal(w, fence.StaleError{Resource: w.resource, Token: 33, Highest: 34}, *stale)
	require.NoError(w, tx.Rollback())
}

func (w *trial) staleWaits() {
	newer, stale := w.begin(), w.begin()
	require.NoError(w, w.check(newer, 34))
	w.write(newer, 34)
	result := w.checkLater(stale, 33)
	require.NoError(w, newer.Commit())
	w.requireStale(w.rerun(stale, <-result, 33))
	w.requireFinal(34)
}

func (w *trial) newerWaits() {
	older, newer := w.begin(), w.begin()
	require.NoError(w, w.check(older, 33))
	w.write(older, 33)
	result := w.checkLater(newer, 34)
	require.NoError(w, older.Commit())
	newer, err := w.rerun(newer, <-result, 34)
	require.NoError(w, err)
	require.Equal(w, 33, w.read(newer))
	w.write(newer, 34)
	require.NoError(w, newer.Commit())
	stale := w.begin()
	w.requireStale(stale, w.check(stale, 33))
	w.requireFinal(34)
}

func (w *trial) staleBeganFirst() {
	stale, newer := w.begin(), w.begin()
	require.NoError(w, w.check(newer, 34))
	w.write(newer, 34)
	require.NoError(w, newer.Commit())
	w.requireStale(stale, w.check(stale, 33))
	w.requireFinal(34)
}

func (w *trial) staleHasOlderSnapshot() {
	stale, newer := w.begin(), w.begin()
	var n int
	require.NoError(w, stale.QueryRow("SELECT count(*) FROM other").Scan(&n)) // it takes the snapshot
	require.NoError(w, w.check(newer, 34))
	w.write(newer, 34)
	require.NoError(w, newer.Commit())
	w.requireStale(w.rerun(stale, w.check(stale, 33), 33))
	w.requireFinal(34)
}

func (w *trial) rollback() {
	newer, older := w.begin(), w.begin()
	require.NoError(w, w.check(newer, 34))
	w.write(newer, 34)
	result := w.checkLater(older, 33)
	require.NoError(w, newer.Rollback())
	require.NoError(w, <-result)
	require.Equal(w, 0, w.read(older))
	w.write(older, 33)
	require.NoError(w, older.Commit())
	w.requireFinal(33)
}

func (w *trial) contextEnds() {
	newer, stale := w.begin(), w.begin()
	require.NoError(w, w.check(newer, 34))
	ctx, cancel := context.WithCancel(w.Context())
	result := make(chan error, 1)
	go func() { result <- w.table.Check(ctx, stale, w.resource, 33) }()
	w.awaitWaiting()
	cancel()
	err := <-result
	require.Error(w, err) // which one depends on the driver
	require.NotErrorIs(w, err, fence.ErrStale)
	w.write(newer, 34)
	require.NoError(w, newer.Commit())
	stale = w.begin()
	w.requireStale(stale, w.check(stale, 33))
	w.requireFinal(34)
}

// pausedInside: without the limit, the newer holder waits as long as the older one is paused.
func (w *trial) pausedInside() {
	older, newer := w.begin(), w.begin()
	require.NoError(w, w.check(older, 33))
	w.write(older, 33)
	_, err := older.Exec(w.limit)
	require.NoError(w, err)
	require.NoError(w, w.check(newer, 34))
	require.Equal(w, 0, w.read(newer))
	require.NoError(w, newer.Commit())
	require.Error(w, older.Commit())
	w.requireFinal(0)
}

func (w *trial) equalTokens() {
	for value := range 3 {
		tx := w.begin()
		for range 3 {
			require.NoError(w, w.check(tx, 34))
		}
		w.write(tx, value)
		require.NoError(w, tx.Commit())
	}
	stale := w.begin()
	w.requireStale(stale, w.check(stale, 33))
	largest := w.begin()
	require.NoError(w, w.check(largest, 1<<53-1))
	require.NoError(w, largest.Commit())
	almost := w.begin()
	require.ErrorIs(w, w.check(almost, 1<<53-2), fence.ErrStale)
}

// inRow is the variant of the package documentation: the token is beside the data.
func (w *trial) inRow() {
	update := func(tx *sql.Tx, token int) error {
		result, err := tx.Exec(fmt.Sprintf("UPDATE data SET value = %[1]d, fence = %[1]d WHERE id = %[2]d AND fence <= %[1]d", token, w.row))
		if err != nil {
			return err
		}
		if rows, err := result.RowsAffected(); rows > 0 || err != nil {
			return err
		}
		return fence.ErrStale
	}
	newer, stale := w.begin(), w.begin()
	require.NoError(w, update(newer, 32))
	require.NoError(w, update(newer, 34))
	result := make(chan error, 1)
	go func() { result <- update(stale, 33) }()
	w.awaitWaiting()
	require.NoError(w, newer.Commit())
	if err := <-result; w.conflicts(w.level) == never || !w.again(err) {
		require.ErrorIs(w, err, fence.ErrStale)
	}
	require.NoError(w, stale.Rollback())
	stale = w.begin()
	require.ErrorIs(w, update(stale, 33), fence.ErrStale)
	require.NoError(w, stale.Rollback())
	w.requireFinal(34)
}

// contention has holders that work at the same time, with tokens in no order. Each reads a number and writes the next
// one, which only Check protects. The numbers must have no gap and no repetition, and the tokens must not decrease.
func (w *trial) contention() {
	const holders, works = 6, 10
	tokens := rand.Perm(holders * works)
	var wg sync.WaitGroup
	var done, refused atomic.Int32
	for holder := range holders {
		wg.Go(func() {
			for _, token := range tokens[holder*works:][:works] {
				err := w.addOne(uint64(token) + 2)
				switch {
				case errors.Is(err, fence.ErrStale):
					refused.Add(1)
				case assert.NoError(w, err):
					done.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(w, int32(holders*works), done.Load()+refused.Load())
	w.requireFinal(int(done.Load()))
	rows, err := w.db.QueryContext(w.Context(), fmt.Sprintf("SELECT value, token FROM log WHERE id = %d ORDER BY value, token", w.row))
	require.NoError(w, err)
	defer rows.Close()
	var inOrder []int
	for n := 1; rows.Next(); n++ {
		var value, token int
		require.NoError(w, rows.Scan(&value, &token))
		require.Equal(w, n, value)
		inOrder = append(inOrder, token)
	}
	require.NoError(w, rows.Err())
	require.Len(w, inOrder, int(done.Load()))
	require.True(w, slices.IsSorted(inOrder), "%v", inOrder)
	require.Equal(w, holders*works+1, inOrder[len(inOrder)-1])
}

// addOne runs a transaction until the database does not ask for it again.
func (w *trial) addOne(token uint64) error {
	for {
		if err := w.tryAddOne(token); err == nil || !w.again(err) {
			return err
		}
	}
}

func (w *trial) tryAddOne(token uint64) error {
	tx, err := w.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: w.level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := w.check(tx, token); err != nil {
		return err
	}
	var value int
	if err := tx.QueryRow(fmt.Sprintf("SELECT value FROM data WHERE id = %d", w.row)).Scan(&value); err != nil {
		return err
	}
	for _, statement := range []string{
		fmt.Sprintf("UPDATE data SET value = %d WHERE id = %d", value+1, w.row),
		fmt.Sprintf("INSERT INTO log (id, value, token) VALUES (%d, %d, %d)", w.row, value+1, token),
	} {
		if _, err := tx.Exec(statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// names are resources that a database might confuse, and one that is as long as the name of a lock can be.
func (d *database) names(t *testing.T) {
	long := make([]byte, 1024)
	for i := range long {
		long[i] = 'x'
	}
	names := []string{"invoice", "Invoice", "invoice ", " invoice", "invoicé", "invoice\t", "0", "00", "'; DROP TABLE data; --", "",
		string(long), string(long[:1023])}
	tx, err := d.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	for i, name := range names {
		require.NoError(t, d.table.Check(t.Context(), tx, name, uint64(1000-i)), "%q", name)
	}
	for i, name := range names {
		require.ErrorIs(t, d.table.Check(t.Context(), tx, name, uint64(999-i)), fence.ErrStale, "%q", name)
	}
	for _, name := range []string{"caf\xe9", "\xff", "a\x00b"} {
		err := d.table.Check(t.Context(), tx, name, 33)
		if d.table.Dialect == fence.Postgres { // and the transaction goes on
			require.ErrorIs(t, err, fence.ErrInvalid, "%q", name)
			continue
		}
		require.NoError(t, err, "%q", name)
		require.ErrorIs(t, d.table.Check(t.Context(), tx, name, 32), fence.ErrStale, "%q", name)
	}
	require.NoError(t, d.table.Check(t.Context(), tx, names[0], 1001))
}
