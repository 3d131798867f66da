package server

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// An Address is where a server listens.
type Address struct {
	Network  string // "tcp" or "unix"
	At       string // host:port, or a path
	Password string // "": none
}

// TCP is the address of a port of this machine. args are those of redis-server: a password may be among them.
func TCP(port int, args []string) Address {
	return Address{Network: "tcp", At: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Password: passwordOf(args)}
}

// Unix is the address of a unix socket. args are those of redis-server: a password may be among them.
func Unix(path string, args []string) Address {
	return Address{Network: "unix", At: path, Password: passwordOf(args)}
}

// URL returns the address as redis://… or unix://….
func (a Address) URL() string {
	u := url.URL{Scheme: "redis", Host: a.At}
	if a.Network == "unix" {
		u = url.URL{Scheme: "unix", Path: a.At}
	}
	if a.Password != "" {
		u.User = url.UserPassword("", a.Password)
	}
	return u.String()
}

// Dial opens a logged-in connection. Each command on it times out after patience.
func (a Address) Dial(ctx context.Context, patience time.Duration) (redis.Conn, error) {
	options := []redis.DialOption{
		redis.DialConnectTimeout(patience),
		redis.DialReadTimeout(patience),
		redis.DialWriteTimeout(patience),
	}
	if a.Password != "" {
		options = append(options, redis.DialPassword(a.Password))
	}
	return redis.DialContext(ctx, a.Network, a.At, options...)
}

// Ping sends one PING.
func (a Address) Ping(ctx context.Context) error {
	conn, err := a.Dial(ctx, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Do("PING")
	return err
}

// AwaitPing pings until the server answers PONG, dead is closed, or ctx ends.
func (a Address) AwaitPing(ctx context.Context, dead <-chan struct{}) error {
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := a.Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer to PING at %s: %w (last: %v)", a.At, context.Cause(ctx), err)
		case <-dead:
			return ErrDied
		case <-time.After(pause):
		}
	}
}

// Save makes the server write its RDB.
func (a Address) Save(ctx context.Context) error {
	conn, err := a.Dial(ctx, StopTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Do("SAVE")
	return err
}

// passwordOf finds --requirepass in the arguments of redis-server, so that the fleet can log in.
func passwordOf(args []string) string {
	for i := 0; i+1 < len(args); i++ {
		if strings.EqualFold(args[i], "--requirepass") {
			return args[i+1]
		}
	}
	return ""
}
