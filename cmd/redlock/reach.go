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

// reachTime is the time to find out why one node could not be connected to.
const reachTime = 2 * time.Second

var (
	errSpeaksPlain = errors.New("it speaks plain Redis there and no TLS; write redis:// instead of rediss://, or give its TLS port")
	errSpeaksTLS   = errors.New("it speaks TLS there; write rediss:// instead of redis://, or give its plain port")
)

// reach finds out why nodes could not be connected to: a TLS client on a plain port, the reverse, or no answer. It
// writes the reason into the status.
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

// reachNode returns nil if it finds no more than the client already reported.
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
		// Nothing is sent over this connection, so the certificate does not matter.
		if tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) == nil {
			return errSpeaksTLS
		}
		return nil
	}
	answer := make([]byte, 1)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return nil
	}
	if _, err := conn.Read(answer); err == nil && (answer[0] == '+' || answer[0] == '-') { // PONG, or a demand to log in
		return errSpeaksPlain
	}
	return nil
}
