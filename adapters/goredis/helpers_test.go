package goredis_test

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/adapters/goredis"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var tell = fleettest.Tell

// addUser adds a user who may do all.
func addUser(t testing.TB, f *fleet.Fleet, user, password string) {
	for _, n := range f.Nodes() {
		tell(t, n, "ACL", "SETUSER", user, "on", "resetpass", ">"+password, "~*", "&*", "+@all")
	}
}

func addressOf(t testing.TB, n *fleet.Node) string {
	u, err := url.Parse(n.URL())
	require.NoError(t, err)
	return u.Host + u.Path
}

// optionsOf returns the options for each node, with what change changes.
func optionsOf(t testing.TB, f *fleet.Fleet, change func(i int, o *redis.Options)) []*redis.Options {
	var all []*redis.Options
	for i, n := range f.Nodes() {
		o := &redis.Options{Addr: addressOf(t, n)}
		change(i, o)
		all = append(all, o)
	}
	return all
}

func open(t testing.TB, options []*redis.Options, change ...func(*redlock.Config)) *redlock.Client {
	nodes, err := goredis.Nodes(options...)
	require.NoError(t, err)
	cfg := redlock.Config{Nodes: nodes, NodeTimeout: 3 * time.Second} // a busy machine is not taken for an outage
	for _, ch := range change {
		ch(&cfg)
	}
	c, err := redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// subscribes matches a subscriber connection in CLIENT LIST.
var subscribes = regexp.MustCompile(` sub=[1-9]`)

// works acquires and releases a contended lock, and returns what node i knows of the client's connections meanwhile.
func works(t *testing.T, f *fleet.Fleet, c *redlock.Client, i int) string {
	t.Helper()
	require.NoError(t, c.Enroll(soon(t)))
	l, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	second := make(chan error, 1)
	go func() {
		second <- c.Mutex("x").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil })
	}()
	var text string
	require.Eventually(t, func() bool { // the subscriber's connection too
		var err error
		text, err = redigo.String(tell(t, f.Nodes()[i], "CLIENT", "LIST"), nil)
		return err == nil && subscribes.MatchString(text)
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, l.Release(soon(t)))
	require.NoError(t, <-second)
	return text
}

// ours are the lines of CLIENT LIST about the client's connections: the node's and the subscriber's.
func ours(list string) (lines []string) {
	for line := range strings.Lines(list) {
		if strings.Contains(line, "name=redlock") || subscribes.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}
