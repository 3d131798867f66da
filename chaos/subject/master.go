package subject

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/sleep"
)

// Everything that the baselines on one master have in common. The file of each baseline shows only how it takes a
// lock and how it releases it.

const pollEvery = 5 * time.Millisecond // pause of a waiter between two tries

// OneMaster is embedded by subjects that use only the first node.
type OneMaster struct{}

// Quorum returns 1.
func (OneMaster) Quorum(int) int { return 1 }

// A master is a connection to the one node that holds the locks, and the options of the client.
type master struct {
	pool *redis.Pool
	Options
}

func openMaster(o Options) (master, error) {
	if len(o.URLs) == 0 {
		return master{}, errors.New("no nodes")
	}
	return master{newPool(o.URLs[0], o.TTL/2), o}, nil
}

func (m master) do(command string, args ...any) (any, error) { return do(m.pool, command, args...) }

func (m master) run(script *redis.Script, args ...any) (any, error) {
	return run(m.pool, script, args...)
}

func (m master) Close() error { return m.pool.Close() }

// step calls Options.Step, if there is one.
func (m master) step(gap string) error {
	if m.Step == nil {
		return nil
	}
	return m.Step(gap)
}

// now is the wall clock of this client.
func (m master) now() time.Time {
	if m.Clock == nil {
		return time.Now()
	}
	return time.Now().Add(m.Clock())
}

// A baseline is a lock on one master: one try to take it, and its release.
type baseline struct {
	// try returns the token that it wrote, and whether it took the lock. It does not wait.
	try     func(m master, name string) (token string, taken bool, err error)
	release func(m master, name, token string) error
}

func (b baseline) open(o Options) (Client, error) {
	m, err := openMaster(o)
	if err != nil {
		return nil, err
	}
	return baselineClient{m, b}, nil
}

type baselineClient struct {
	master
	baseline
}

// Acquire polls until a try takes the lock. The TTL counts from before that try.
func (c baselineClient) Acquire(ctx context.Context, name string) (Lease, error) {
	var token string
	var began time.Time
	err := poll(ctx, func() (taken bool, err error) {
		began = time.Now()
		token, taken, err = c.try(c.master, name)
		return taken, err
	})
	if err != nil {
		return nil, err
	}
	return baselineLease{timedLease{basicLease{name, token}, began.Add(c.TTL)}, c}, nil
}

type baselineLease struct {
	timedLease
	client baselineClient
}

func (l baselineLease) Release(context.Context) error {
	return l.client.release(l.client.master, l.name, l.token)
}

// poll calls try until it takes the lock or fails, or ctx ends. If ctx ends, somebody else holds the lock.
func poll(ctx context.Context, try func() (taken bool, err error)) error {
	for {
		if taken, err := try(); taken || err != nil {
			return err
		}
		if err := sleep.For(ctx, pollEvery); err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
}

// A basicLease has an owner token. It has no fencing token, and its holder never learns of its loss.
type basicLease struct{ name, token string }

func (basicLease) Lost() <-chan struct{} { return nil }
func (basicLease) Fence() uint64         { return 0 }
func (l basicLease) Token() string       { return l.token }

// The holder of a timedLease believes in it until its TTL is over.
type timedLease struct {
	basicLease
	until time.Time
}

func (l timedLease) Valid() bool { return time.Now().Before(l.until) }

// setNX is the safe way to take a lock on one master: SET NX PX with a random token.
func setNX(m master, name string) (token string, taken bool, err error) {
	token = newToken()
	reply, err := m.do("SET", name, token, "NX", "PX", millis(m.TTL))
	return token, reply != nil, err
}

// unlockScript is the script that the Redis documentation gives for a safe release.
var unlockScript = redis.NewScript(1, `if redis.call("get",KEYS[1]) == ARGV[1] then
	return redis.call("del",KEYS[1])
else
	return 0
end`)

var errNotOurs = errors.New("the lock was no longer ours")

// compareAndDelete is the safe way to release a lock on one master.
func compareAndDelete(m master, name, token string) error {
	deleted, err := redis.Int(m.run(unlockScript, name, token))
	if err == nil && deleted == 0 {
		err = errNotOurs
	}
	return err
}

func newToken() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
