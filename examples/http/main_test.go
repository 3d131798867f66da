package main

import (
	"context"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/redlocktest"
)

func connect(t *testing.T) (*redlocktest.Nodes, *redlock.Client) {
	nodes := redlocktest.Start(t, 3)
	client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), NodeTimeout: 3 * time.Second}) // however busy the machine is
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Enroll(t.Context()))
	return nodes, client
}

// lines is a writer for several goroutines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func TestOfFiveRequestsForOneOrderOneIsServed(t *testing.T) {
	_, client := connect(t)
	var out lines
	require.NoError(t, show(t.Context(), &out, client))
	text := out.text.String()
	require.Equal(t, 4, strings.Count(text, "/orders/7/pay: 409 Conflict: another request is working on this\n"), text)
	require.Equal(t, 1, strings.Count(text, "/orders/7/pay: 200 OK: paid\n"), text)
	require.Equal(t, 1, strings.Count(text, "/orders/8/pay: 200 OK: paid\n"), text)
}

// The payment waits for the others, and must not wait for ever for one that was told that the locks are away.
func TestARequestIsRefusedByAnyStatusButOK(t *testing.T) {
	for status, count := range map[int]int{http.StatusOK: 0, http.StatusConflict: 1, http.StatusServiceUnavailable: 1} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		refused := make(chan struct{}, 1)
		require.NoError(t, post(t.Context(), &lines{}, server.URL, refused))
		require.Len(t, refused, count, status)
		server.Close()
	}
}

func TestTheStatusSaysWhatIsWrong(t *testing.T) {
	nodes, client := connect(t)
	paid := 0
	handler := service(client, func(context.Context, string) error { paid++; return nil })
	ask := func(order string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders/"+order+"/pay", nil))
		return answer
	}
	require.Equal(t, http.StatusOK, ask("7").Code)
	lease, err := client.Mutex("order/7").Acquire(t.Context())
	require.NoError(t, err)
	answer := ask("7")
	require.Equal(t, http.StatusConflict, answer.Code)
	require.Equal(t, "1", answer.Header().Get("Retry-After"))
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, http.StatusBadRequest, ask(strings.Repeat("7", 2000)).Code)
	nodes.Kill(0)
	nodes.Kill(1)
	require.Equal(t, http.StatusServiceUnavailable, ask("7").Code)
	require.Equal(t, 1, paid)
}

// The client closes its connection. The lock is released, and there is nothing to log.
func TestAClientThatGoesLeavesNoLockAndNoLineInTheLog(t *testing.T) {
	_, client := connect(t)
	var logged lines
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	ctx, goes := context.WithCancel(t.Context())
	handler := oneAtATime(client, func(*http.Request) string { return "x" }, func(_ http.ResponseWriter, r *http.Request) {
		goes()
		<-r.Context().Done()
	})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	lease, err := client.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
	require.Empty(t, logged.text.String())
}

// A handler that panics, or whose lease is lost, leaves no lock behind and hears of the loss.
func TestTheRequestEndsWithItsLease(t *testing.T) {
	_, client := connect(t)
	var cause error
	lost := oneAtATime(client, func(*http.Request) string { return "x" }, func(_ http.ResponseWriter, r *http.Request) {
		require.NoError(t, client.ForceRelease(r.Context(), "x"))
		<-r.Context().Done() // the next renewal notices it
		cause = context.Cause(r.Context())
	})
	begun := time.Now()
	lost.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	require.ErrorIs(t, cause, redlock.ErrLost)
	require.Less(t, time.Since(begun), time.Minute)

	panics := oneAtATime(client, func(*http.Request) string { return "y" }, func(http.ResponseWriter, *http.Request) { panic("bug") })
	require.Panics(t, func() {
		panics.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	})
	lease, err := client.Mutex("y").TryAcquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}
