package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// An address is where a server listens: "tcp" and host:port, or "unix" and a path.
type address struct {
	network, at string
	password    string // from --requirepass in Options.Args
}

// url returns the address as redis://… or unix://….
func (a address) url() string {
	u := url.URL{Scheme: "redis", Host: a.at}
	if a.network == "unix" {
		u = url.URL{Scheme: "unix", Path: a.at}
	}
	if a.password != "" {
		u.User = url.UserPassword("", a.password)
	}
	return u.String()
}

// dial opens a logged-in connection. Each command on it times out after patience.
func (a address) dial(ctx context.Context, patience time.Duration) (redis.Conn, error) {
	options := []redis.DialOption{
		redis.DialConnectTimeout(patience),
		redis.DialReadTimeout(patience),
		redis.DialWriteTimeout(patience),
	}
	if a.password != "" {
		options = append(options, redis.DialPassword(a.password))
	}
	return redis.DialContext(ctx, a.network, a.at, options...)
}

// ping sends one PING.
func (a address) ping(ctx context.Context) error {
	conn, err := a.dial(ctx, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Do("PING")
	return err
}

// awaitPing pings until the server answers PONG, dead is closed, or ctx ends.
func (a address) awaitPing(ctx context.Context, dead <-chan struct{}) error {
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := a.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer to PING at %s: %w (last: %v)", a.at, context.Cause(ctx), err)
		case <-dead:
			return errDied
		case <-time.After(pause):
		}
	}
}

var errDied = errors.New("the server ended before it answered PING")

// passwordOf finds --requirepass in the arguments of redis-server, so that the fleet can log in.
func passwordOf(args []string) string {
	for i := 0; i+1 < len(args); i++ {
		if strings.EqualFold(args[i], "--requirepass") {
			return args[i+1]
		}
	}
	return ""
}
