package subject

import (
	"context"
	"strconv"

	"github.com/gomodule/redigo/redis"
)

// GetSet is the "design pattern: locking with SETNX" from the Redis documentation of SETNX. The value of the lock is
// the wall-clock time at which it expires. A client that finds an expired time takes the lock over with GETSET. It
// has the lock if GETSET returned an expired time too.
//
// Its weakness: the client that wants the lock decides by its own clock whether it has expired. A client whose clock
// is ahead takes a lock that is held.
type GetSet struct{ OneMaster }

// Name returns "getset".
func (GetSet) Name() string { return "getset" }

// About describes the subject in one line.
func (GetSet) About() string {
	return "SETNX and GETSET of the expiry on one master: a client whose clock is ahead takes a held lock"
}

// Open connects to the first node. The release is as in the pattern: DEL if the lock has not expired. It compares as
// well, so that only the one weakness shows.
func (GetSet) Open(_ context.Context, o Options) (Client, error) {
	return baseline{try: setnxOrGetset, release: compareAndDelete}.open(o)
}

func setnxOrGetset(m master, name string) (expiry string, taken bool, err error) {
	// In microseconds. The documentation uses seconds: two owners in the same second would look the same.
	expiry = strconv.FormatInt(m.now().Add(m.TTL).UnixMicro(), 10)
	set, err := redis.Int(m.do("SETNX", name, expiry))
	if set == 1 || err != nil {
		return expiry, set == 1, err
	}
	reply, err := m.do("GET", name)
	if reply == nil || err != nil { // nil: it was released just now; the next try begins with SETNX again
		return expiry, false, err
	}
	if over, err := expired(m, reply, nil); !over || err != nil {
		return expiry, false, err
	}
	reply, err = m.do("GETSET", name, expiry)
	taken, err = expired(m, reply, err)
	return expiry, taken, err
}

// expired reports whether the time in a reply is over. A reply without a value means that the lock was deleted.
func expired(m master, reply any, err error) (bool, error) {
	ends, err := redis.Int64(reply, err)
	if err == redis.ErrNil {
		return true, nil
	}
	return err == nil && ends <= m.now().UnixMicro(), err
}
