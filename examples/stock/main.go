// Command stock shows a stock that many buyers decrement, under a lock and with a fencing token, in SQLite or
// PostgreSQL. The lock lets one buyer at a time decide. The token protects the table from a buyer that was paused for longer than
// its lease, and wakes up believing that it still has the lock.
//
//	cd examples/stock
//	go run .
//	go run . -nodes redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1 -postgres postgres://user:password@host/db
//
// It creates the tables stock and redlock_fence in that database. It is a module of its own, because of the drivers.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/mattn/go-sqlite3"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/examples/internal/nodes"
	"github.com/quorumlock/redlock/fence"
)

func main() {
	log.SetFlags(0)
	urls := flag.String("nodes", "", nodes.Usage)
	postgres := flag.String("postgres", "", "URL of a PostgreSQL database; empty: SQLite in a temporary directory")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *urls, *postgres); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, urls, postgres string) error {
	list, end, err := nodes.Open(ctx, urls)
	if err != nil {
		return err
	}
	defer end()
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(list...)})
	if err != nil {
		return err
	}
	defer client.Close()
	dir, err := os.MkdirTemp("", "stock-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := open(ctx, client, postgres, filepath.Join(dir, "stock.db"))
	if err != nil {
		return err
	}
	defer s.db.Close()
	return s.show(ctx, out)
}

// A stock is a table in a database, and the lock that goes with it.
type stock struct {
	client *redlock.Client
	db     *sql.DB
	tokens fence.Table // the largest fencing token of each item
}

var errSoldOut = errors.New("sold out")

// open connects to the database, or to the SQLite file if the URL is empty, and makes the tables.
func open(ctx context.Context, client *redlock.Client, postgres, file string) (s *stock, err error) {
	s = &stock{client: client, tokens: fence.Table{Dialect: fence.Postgres}}
	driver, source := "pgx", postgres
	if postgres == "" {
		// Transactions begin as writers, and wait for one another.
		s.tokens.Dialect = fence.SQLite
		driver, source = "sqlite3", "file:"+file+"?_journal_mode=WAL&_busy_timeout=10000&_txlock=immediate"
	}
	if s.db, err = sql.Open(driver, source); err != nil {
		return nil, err
	}
	if err = s.tokens.Create(ctx, s.db); err == nil {
		_, err = s.db.ExecContext(ctx,
			"CREATE TABLE IF NOT EXISTS stock (item VARCHAR(64) PRIMARY KEY, amount INTEGER NOT NULL)")
	}
	if err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

// lock is that of an item.
func (s *stock) lock(item string) redlock.Lock { return s.client.Mutex("stock/" + item) }

// buy takes one of the item, or returns errSoldOut.
func (s *stock) buy(ctx context.Context, item string) error {
	return s.lock(item).Do(ctx, func(ctx context.Context, lease *redlock.Lease) error {
		return s.take(ctx, item, lease.Fence())
	})
}

// take is what happens under the lock. The token is checked in the transaction that changes the stock: whatever happens
// to the lock meanwhile, nobody with an older token changes it afterwards.
func (s *stock) take(ctx context.Context, item string, token uint64) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if err := s.tokens.Check(ctx, tx, "stock/"+item, token); err != nil {
		return err
	}
	var amount int
	if err := tx.QueryRowContext(ctx, "SELECT amount FROM stock WHERE item = $1", item).Scan(&amount); err != nil {
		return err
	}
	if amount == 0 {
		return errSoldOut
	}
	// In a real program this is where the decision is: prices, limits, a call to another service.
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET amount = $1 WHERE item = $2", amount-1, item); err != nil {
		return err
	}
	return tx.Commit()
}

// fill sets the amount of an item.
func (s *stock) fill(ctx context.Context, item string, amount int) error {
	_, err := s.db.ExecContext(ctx,
		"INSERT INTO stock (item, amount) VALUES ($1, $2) ON CONFLICT (item) DO UPDATE SET amount = $2", item, amount)
	return err
}

func (s *stock) left(ctx context.Context, item string) (amount int, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT amount FROM stock WHERE item = $1", item).Scan(&amount)
	return amount, err
}

// show has more buyers than there are items, and then a buyer that wakes up after its lease has ended.
func (s *stock) show(ctx context.Context, out io.Writer) error {
	const item, amount, buyers = "bicycle", 10, 15
	if err := s.fill(ctx, item, amount); err != nil {
		return err
	}
	var wg sync.WaitGroup
	results := make(chan error, buyers)
	for range buyers {
		wg.Go(func() { results <- s.buy(ctx, item) })
	}
	wg.Wait()
	close(results)
	bought, soldOut := 0, 0
	for err := range results {
		switch {
		case err == nil:
			bought++
		case errors.Is(err, errSoldOut):
			soldOut++
		default:
			return err
		}
	}
	left, err := s.left(ctx, item)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d items, %d buyers: %d bought one, %d came too late, %d left\n", amount, buyers, bought, soldOut, left)

	if err := s.fill(ctx, item, 1); err != nil {
		return err
	}
	paused, err := s.lock(item).WithTTL(200 * time.Millisecond).WithoutRenewal().Acquire(ctx)
	if err != nil {
		return err
	}
	next, err := s.lock(item).Acquire(ctx) // gets it after the first lease has expired
	if err != nil {
		return err
	}
	if err := s.take(ctx, item, next.Fence()); err != nil {
		return err
	}
	if err := next.Release(ctx); err != nil {
		return err
	}
	err = s.take(ctx, item, paused.Fence()) // it does not know that its lease is over
	if !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("the paused buyer was not refused: %w", err)
	}
	if left, err = s.left(ctx, item); err != nil {
		return err
	}
	fmt.Fprintf(out, "a buyer that was paused for longer than its lease is refused, %d left\n", left)
	return nil
}
