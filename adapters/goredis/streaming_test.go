package goredis_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// A stream is a provider that tells its listeners each new login. Like others of its kind, it also tells them the first.
type stream struct {
	mu        sync.Mutex
	now       auth.Credentials
	listeners map[auth.CredentialsListener]bool
	err       error
}

func newStream(user, password string) *stream {
	return &stream{now: auth.NewBasicCredentials(user, password), listeners: map[auth.CredentialsListener]bool{}}
}

func (s *stream) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, nil, s.err
	}
	s.listeners[l] = true
	l.OnNext(s.now)
	return s.now, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
		return nil
	}, nil
}

// next tells all listeners, under its lock.
func (s *stream) next(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = auth.NewBasicCredentials(user, password)
	for l := range s.listeners {
		l.OnNext(s.now)
	}
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		l.OnError(err)
	}
}

func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listeners)
}

// endsWithoutListeners is for a stream whose clients are closed. Close does not wait for a Dial that is under way: its
// connection is closed as soon as it comes.
func (s *stream) endsWithoutListeners(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return s.count() == 0 }, 15*time.Second, time.Millisecond, "a connection is left that listens")
}

// idOf returns the number and the user of the client's connection to the node.
func idOf(t testing.TB, n *fleet.Node) (id, user string) {
	list, err := redigo.String(tell(t, n, "CLIENT", "LIST"), nil)
	require.NoError(t, err)
	for line := range strings.Lines(list) {
		if strings.Contains(line, "name=redlock ") {
			for _, field := range strings.Fields(line) {
				if value, ok := strings.CutPrefix(field, "id="); ok {
					id = value
				}
				if value, ok := strings.CutPrefix(field, "user="); ok {
					user = value
				}
			}
		}
	}
	return id, user
}

// Open connections log in anew when the provider has a new login, and go on.
func TestAStreamOfCredentialsRenewsTheLoginOfOpenConnections(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	addUser(t, f, "old", "first")
	addUser(t, f, "new", "second")
	s := newStream("old", "first")
	down := make(chan error, 100)
	client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.StreamingCredentialsProvider = s }),
		func(cfg *redlock.Config) {
			cfg.Hooks.NodeDown = func(_ string, err error) { down <- err }
		})
	works(t, f, client, 0)
	var before []string
	for _, n := range f.Nodes() {
		id, user := idOf(t, n)
		require.Equal(t, "old", user)
		before = append(before, id)
	}
	s.fail(errors.New("the provider is away for a moment"))

	l, err := client.Mutex("held").Acquire(soon(t))
	require.NoError(t, err)
	s.next("new", "second")
	require.NoError(t, l.Extend(soon(t)))
	for i, n := range f.Nodes() {
		require.Eventually(t, func() bool {
			_, user := idOf(t, n)
			return user == "new"
		}, 15*time.Second, time.Millisecond)
		after, _ := idOf(t, n)
		require.Equal(t, before[i], after, "the same connection")
		tell(t, n, "ACL", "DELUSER", "old") // ends the connections that are still logged in as old: the subscribers'
	}
	for _, line := range ours(works(t, f, client, 0)) {
		require.Contains(t, line, "user=new ")
	}
	require.NoError(t, l.Release(soon(t)))
	require.Empty(t, down)

	require.NoError(t, client.Close())
	s.endsWithoutListeners(t)
}

// An idle connection logs in anew within the five seconds in which the client asks each node how it is.
func TestAStreamOfCredentialsReachesIdleConnections(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	addUser(t, f, "old", "first")
	addUser(t, f, "new", "second")
	s := newStream("old", "first")
	client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.StreamingCredentialsProvider = s }))
	require.NoError(t, client.Enroll(soon(t)))
	s.next("new", "second")
	require.Eventually(t, func() bool {
		_, user := idOf(t, f.Nodes()[0])
		return user == "new"
	}, 15*time.Second, 10*time.Millisecond)
}

// A login that the server refuses ends the connection, and the error says so.
func TestAStreamOfWrongCredentialsIsNamed(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	addUser(t, f, "old", "first")
	s := newStream("old", "first")
	down := make(chan error, 100)
	client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.StreamingCredentialsProvider = s }),
		func(cfg *redlock.Config) {
			cfg.Hooks.NodeDown = func(_ string, err error) { down <- err }
		})
	works(t, f, client, 0)
	s.next("old", "hunter2")
	_ = client.Status(soon(t)) // asks the node
	err := <-down
	require.ErrorContains(t, err, "it refused the renewed login: WRONGPASS")
	require.NotContains(t, err.Error(), "hunter2")
	require.Eventually(t, func() bool {
		why := client.Status(soon(t))[0].Err
		return why != nil && strings.Contains(why.Error(), "it refused the login: WRONGPASS")
	}, 5*time.Second, time.Millisecond)
	s.next("old", "first")
	require.Eventually(t, func() bool { return client.Status(soon(t))[0].Err == nil }, 10*time.Second, 10*time.Millisecond)
}

// Clients are closed and connections cut while logins change: for the race detector and the test for leaked goroutines.
func TestLoginsChangeWhileConnectionsComeAndGo(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	addUser(t, f, "old", "first")
	addUser(t, f, "new", "second")
	s := newStream("old", "first")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if i%2 == 0 {
				s.next("new", "second")
			} else {
				s.next("old", "first")
			}
			if i%20 == 0 {
				tell(t, f.Nodes()[i/20%3], "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			}
		}
	})
	for range 5 {
		client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.StreamingCredentialsProvider = s }))
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				for ctx.Err() == nil {
					_ = client.Enroll(ctx)
					_ = client.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
				}
			})
		}
		workers.Wait()
		require.NoError(t, client.Close())
	}
	close(stop)
	wg.Wait()
	s.endsWithoutListeners(t)
}

// A provider may be busy under its lock for long, as while it asks for a token. A connection that ends does not wait for that.
func TestCloseDoesNotWaitForAProviderThatIsBusy(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	addUser(t, f, "user", "password")
	s := newStream("user", "password")
	client := open(t, optionsOf(t, f, func(_ int, o *redis.Options) { o.StreamingCredentialsProvider = s }))
	works(t, f, client, 0)
	s.mu.Lock()
	closed := make(chan error, 1)
	go func() { closed <- client.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-soon(t).Done():
		t.Error("Close waits for the provider")
	}
	s.mu.Unlock()
	s.endsWithoutListeners(t)
}
