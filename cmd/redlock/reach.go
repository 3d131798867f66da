package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// reachTime bounds the look at one node that could not be connected to.
const reachTime = 2 * time.Second

var (
	errSpeaksPlain = errors.New("it speaks plain Redis there and no TLS; write redis:// in place of rediss://, or give its TLS port")
	errSpeaksTLS   = errors.New("it speaks TLS there; write rediss:// in place of redis://, or give its plain port")
)

// reach looks why nodes could not be connected to: whether TLS meets a plain port, or the reverse, or nobody answers.
// It says so in the status.
func reach(ctx context.Context, nodes []redlock.Node, status []redlock.NodeStatus) {
	var wg sync.WaitGroup
	for i := range nodes {
		if status[i].Connected {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, reachTime)
			defer cancel()
			if err := reachNode(ctx, nodes[i].URL); err != nil {
				status[i].Err = err
			}
		})
	}
	wg.Wait()
}

// reachNode is nil where it finds nothing that the client does not say itself.
func reachNode(ctx context.Context, raw string) error {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		scheme, rest = "redis", raw
	}
	u, err := url.Parse("redis://" + rest)
	if err != nil || scheme == "unix" {
		return nil
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if scheme == "redis" {
		// Nothing is sent over it, so it need not be the right server's.
		if tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) == nil {
			return errSpeaksTLS
		}
		return nil
	}
	answer := make([]byte, 1)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return nil
	}
	if _, err := conn.Read(answer); err == nil && (answer[0] == '+' || answer[0] == '-') { // PONG, or that it wants a login
		return errSpeaksPlain
	}
	return nil
}
