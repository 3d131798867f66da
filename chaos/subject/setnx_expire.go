package subject

import (
	"context"
	"fmt"

	"github.com/gomodule/redigo/redis"
)

// SetnxExpire is the lock of countless tutorials from before Redis 2.6.12: SETNX takes the lock, then EXPIRE gives
// it a TTL. The Redis documentation of SETNX warns of the deadlock when "the client fails, crashes, or is otherwise
// not able to release the lock".
//
// Its weakness: a client that dies between the two commands leaves a lock that never expires.
type SetnxExpire struct{ OneMaster }

// GapSetnxExpire is the moment at which a client of SetnxExpire can die.
const GapSetnxExpire = "between SETNX and EXPIRE"

// Name returns "setnx-expire".
func (SetnxExpire) Name() string { return "setnx-expire" }

// About describes the subject in one line.
func (SetnxExpire) About() string {
	return "SETNX then EXPIRE on one master: a crash in between leaves a lock that never expires"
}

// Open connects to the first node. The release compares, so that only the one weakness shows.
func (SetnxExpire) Open(_ context.Context, o Options) (Client, error) {
	return baseline{try: setnxThenExpire, release: compareAndDelete}.open(o)
}

func setnxThenExpire(m master, name string) (token string, taken bool, err error) {
	token = newToken()
	set, err := redis.Int(m.do("SETNX", name, token))
	if set == 0 || err != nil {
		return token, false, err
	}
	if err := m.step(GapSetnxExpire); err != nil {
		return token, false, err
	}
	if _, err := m.do("PEXPIRE", name, millis(m.TTL)); err != nil {
		return token, false, fmt.Errorf("the lock was taken and has no expiry: %w", err)
	}
	return token, true, nil
}
