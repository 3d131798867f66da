package subject

import (
	"context"

	"github.com/gomodule/redigo/redis"
)

// GetDel takes the lock as the Redis documentation says: SET NX PX with a random value. But its release is GET, a
// comparison in the client, and DEL. The documentation of SET gives a script instead.
//
// Its weakness: if the lock expires between GET and DEL, DEL deletes the lock of the next owner.
type GetDel struct{ OneMaster }

// GapGetDel is the moment at which a release of GetDel can be delayed.
const GapGetDel = "between GET and DEL"

// Name returns "get-del".
func (GetDel) Name() string { return "get-del" }

// About describes the subject in one line.
func (GetDel) About() string {
	return "SET NX PX on one master, released by GET then DEL: a slow release deletes the next owner's lock"
}

// Open connects to the first node.
func (GetDel) Open(_ context.Context, o Options) (Client, error) {
	return baseline{try: setNX, release: getThenDel}.open(o)
}

func getThenDel(m master, name, token string) error {
	owner, err := redis.String(m.do("GET", name))
	if err == redis.ErrNil || err == nil && owner != token {
		return errNotOurs
	}
	if err != nil {
		return err
	}
	if err := m.step(GapGetDel); err != nil {
		return err
	}
	_, err = m.do("DEL", name)
	return err
}
