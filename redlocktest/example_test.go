package redlocktest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/redlocktest"
)

// runReport is the code under test.
func runReport(ctx context.Context, locks *redlock.Client) (ran bool, err error) {
	return locks.Mutex("report").TryDo(ctx, func(context.Context, *redlock.Lease) error { return nil })
}

// The package documentation has this test.
func TestTheReportRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()

		lease, err := client.Mutex("report").Acquire(t.Context()) // another process, say
		if err != nil {
			t.Fatal(err)
		}
		ran, err := runReport(t.Context(), client) // the code under test, which calls TryDo
		if ran || err != nil {
			t.Errorf("while the lock is held: ran %v, error %v", ran, err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		nodes.Kill(0) // one of three may be down
		ran, err = runReport(t.Context(), client)
		if !ran || err != nil {
			t.Errorf("while the lock is free: ran %v, error %v", ran, err)
		}
	})
}

// pay is the code under test: it answers 409 while another request for the same order is being served.
func pay(locks *redlock.Client, charge func(order string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		order := r.PathValue("order")
		ran, err := locks.Mutex("order/"+order).TryDo(r.Context(), func(context.Context, *redlock.Lease) error {
			return charge(order)
		})
		switch {
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case !ran:
			http.Error(w, "the order is being paid", http.StatusConflict)
		}
	}
}

// A handler answers 409 while the lock is held, 200 when it is free, and 503 if too few nodes are up.
func TestExampleHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		charged := 0
		mux := http.NewServeMux()
		mux.Handle("POST /orders/{order}/pay", pay(client, func(string) error { charged++; return nil }))
		expect := func(wantStatus, wantCharged int) {
			t.Helper()
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequest("POST", "/orders/42/pay", nil))
			if answer.Code != wantStatus || charged != wantCharged {
				t.Errorf("status %d, charged %d times; want %d and %d", answer.Code, charged, wantStatus, wantCharged)
			}
		}

		lease, err := client.Mutex("order/42").Acquire(t.Context()) // another request
		if err != nil {
			t.Fatal(err)
		}
		expect(http.StatusConflict, 0)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(http.StatusOK, 1)
		nodes.Kill(0)
		expect(http.StatusOK, 2)
		nodes.Kill(1)
		expect(http.StatusServiceUnavailable, 2)
	})
}

// export is the code under test: work in steps, which stops when it loses the lock.
func export(ctx context.Context, lock redlock.Lock, step func(n int) error) error {
	return lock.Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
		for n := range 100 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := step(n); err != nil {
				return err
			}
		}
		return nil
	})
}

// Two of three nodes die while the work is done. Its context ends when the lease is over, so it stops after at most 10
// more steps, and says that it lost the lock. In the bubble, a step of a second takes no time.
func TestExampleLossInMidWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()

		const lastBefore = 30 // the lease was renewed until then
		steps := 0
		err = export(t.Context(), client.Mutex("export"), func(n int) error {
			time.Sleep(time.Second)
			if n == lastBefore {
				nodes.Kill(0)
				nodes.Kill(1)
			}
			steps++
			return nil
		})
		if !errors.Is(err, redlock.ErrLost) {
			t.Errorf("the error is %v, not ErrLost", err)
		}
		if after := steps - lastBefore; after < 1 || after > 10 { // the TTL is 10 s
			t.Errorf("%d steps after the nodes died", after)
		}
	})
}
