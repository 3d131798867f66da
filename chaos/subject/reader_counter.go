package subject

import (
	"context"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/chaos/history"
)

// ReaderCounter is a read–write lock on one master as it is often written: a counter of the readers, and a key of the
// writer. Both expire.
//
// Its weaknesses: the lock is on one master and is lost with it. And the counter belongs to nobody: what a dead reader
// added to it lasts as long as others come, and what a late release takes from it was somebody else's.
type ReaderCounter struct{ OneMaster }

// Name returns "reader-counter".
func (ReaderCounter) Name() string { return "reader-counter" }

// About describes the subject in one line.
func (ReaderCounter) About() string {
	return "a counter of readers and the key of a writer, on one master: a writer among readers after a failover"
}

// Kind returns that it is for readers and writers.
func (ReaderCounter) Kind() Kind { return Kind{Lock: history.ReadWrite} }

// Open connects to the first node.
func (ReaderCounter) Open(_ context.Context, o Options) (Client, error) {
	m, err := openMaster(o)
	if err != nil {
		return nil, err
	}
	return readerCounterClient{m}, nil
}

var (
	writerScript = redis.NewScript(2, `if redis.call('exists', KEYS[1], KEYS[2]) > 0 then return 0 end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return 1`)
	readerScript = redis.NewScript(2, `if redis.call('exists', KEYS[1]) > 0 then return 0 end
redis.call('incr', KEYS[2])
redis.call('pexpire', KEYS[2], ARGV[2])
return 1`)
	readerGone = redis.NewScript(1, `if redis.call('decr', KEYS[1]) <= 0 then redis.call('del', KEYS[1]) end
return 1`)
)

func readersOf(name string) string { return name + ":readers" }

// A readerCounterClient has a baseline for each role.
type readerCounterClient struct{ master }

func (c readerCounterClient) Acquire(ctx context.Context, name string) (Lease, error) {
	return c.AcquireAs(ctx, name, Want{})
}

// AcquireAs polls until the client is a reader, or the writer.
func (c readerCounterClient) AcquireAs(ctx context.Context, name string, w Want) (Lease, error) {
	role := baseline{
		try: func(m master, name string) (token string, taken bool, err error) {
			token = newToken()
			taken, err = redis.Bool(m.run(writerScript, name, readersOf(name), token, millis(m.TTL)))
			return token, taken, err
		},
		release: compareAndDelete,
	}
	if w.Reader {
		role = baseline{
			try: func(m master, name string) (token string, taken bool, err error) { // a reader has no token
				taken, err = redis.Bool(m.run(readerScript, name, readersOf(name), "", millis(m.TTL)))
				return "", taken, err
			},
			release: func(m master, name, _ string) error {
				_, err := m.run(readerGone, readersOf(name))
				return err
			},
		}
	}
	return baselineClient{c.master, role}.Acquire(ctx, name)
}
