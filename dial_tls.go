package redlock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock/internal/sleep"
)

// TLS, and what it means if it fails: a client of TLS on a plain port, the reverse, a certificate that one side does
// not accept. Servers say little about it. A plain server waits for the end of a line and is silent; a TLS server ends
// the connection. So the client asks once more, on a connection of its own.

var (
	errSpeaksPlain = errors.New("it speaks plain Redis there and no TLS; write redis:// instead of rediss://, or give its TLS port")
	errSpeaksTLS   = errors.New("it speaks TLS there; write rediss:// instead of redis://, or give its plain port")
)

const (
	remedyAuthority  = "if an authority of your own signed it, give that one in Node.TLS.RootCAs (--ca)"
	remedyName       = "give the host by a name that is in its certificate, or set Node.TLS.ServerName"
	remedyDemands    = "it demands a client certificate; give one in Node.TLS.Certificates (--cert and --key)"
	remedyMayDemand  = "it may demand a client certificate; give one in Node.TLS.Certificates (--cert and --key)"
	remedyExpired    = "renew the certificate of the server, or set the clock of this host (NTP)"
	remedyOurs       = "that is the client certificate: renew it, or set the clock of the server (NTP)"
	remedyNotTrusted = "it does not accept the client certificate; give one that its certificate authority (tls-ca-cert-file) has issued"
)

// secure makes the TLS handshake. If the answer is late, it finds out whether the server speaks plain Redis.
func (e *endpoint) secure(ctx context.Context, opened net.Conn, timeout time.Duration) (net.Conn, error) {
	secure := tls.Client(opened, e.tls)
	ctx, stop := context.WithCancelCause(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		if sleep.For(ctx, timeout/2) == nil && e.speaksPlain(ctx) {
			stop(errSpeaksPlain)
		}
	})
	err := secure.HandshakeContext(ctx)
	stop(nil)
	asking.Wait()
	var record tls.RecordHeaderError
	switch {
	case err == nil:
		return secure, nil
	case context.Cause(ctx) == errSpeaksPlain, errors.As(err, &record) && isReply(record.RecordHeader[0]):
		return nil, errSpeaksPlain
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("the TLS handshake was not over within %v", timeout)
	}
	return nil, e.explainTLS(err)
}

// explain adds to why a new connection failed what TLS, or the lack of it, has to do with that. It asks for no longer
// than half the timeout, because a server that has come back is to be connected to soon.
func (e *endpoint) explain(ctx context.Context, timeout time.Duration, err error) error {
	var network net.Error
	switch {
	case e.network != "tcp" || isRefusal(err) || ctx.Err() != nil || errors.As(err, &network) && network.Timeout():
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout/2)
	defer cancel()
	if e.tls == nil {
		if e.speaksTLS(ctx) {
			return errSpeaksTLS
		}
		return err
	}
	// With TLS 1.3 a server refuses the client's certificate after the handshake. What the client has sent meanwhile may
	// reset the connection, and the reason is lost. A client that sends nothing gets it.
	if !isAlert(err) {
		if reason := e.listenTLS(ctx); isAlert(reason) {
			err = reason
		}
	}
	return e.explainTLS(err)
}

// explainTLS adds the remedy to an error of TLS.
func (e *endpoint) explainTLS(err error) error {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var bad x509.CertificateInvalidError
	remedy := ""
	switch {
	case errors.As(err, &authority):
		remedy = remedyAuthority
	case errors.As(err, &name):
		remedy = remedyName
	case errors.As(err, &bad) && bad.Reason == x509.Expired:
		remedy = remedyExpired
	case !isAlert(err):
		return err
	case strings.Contains(err.Error(), "expired certificate") && e.hasCertificate():
		remedy = remedyOurs
	case strings.Contains(err.Error(), "certificate"):
		remedy = remedyNotTrusted
		if !e.hasCertificate() {
			remedy = remedyDemands
		}
	case strings.Contains(err.Error(), "handshake failure") && !e.hasCertificate(): // how TLS 1.2 says it
		remedy = remedyMayDemand
	default:
		return err
	}
	return &tlsError{err, remedy}
}

// A tlsError adds the remedy. It is a type of its own so that it is not taken for an error of the network alone.
type tlsError struct {
	err    error
	remedy string
}

func (t *tlsError) Error() string { return t.err.Error() + "; " + t.remedy }
func (t *tlsError) Unwrap() error { return t.err }

func (e *endpoint) hasCertificate() bool {
	return len(e.tls.Certificates) > 0 || e.tls.GetClientCertificate != nil
}

// isAlert reports whether the other side said what is wrong.
func isAlert(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "remote error"
}

// isReply reports whether a reply of Redis begins with this byte: PONG, or an error.
func isReply(first byte) bool { return first == '+' || first == '-' }

// speaksPlain asks the server whether it speaks Redis without TLS.
func (e *endpoint) speaksPlain(ctx context.Context) bool {
	answer := []byte{0}
	return e.ask(ctx, func(conn net.Conn) error {
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return err
		}
		_, err := conn.Read(answer)
		return err
	}) == nil && isReply(answer[0])
}

// speaksTLS asks the server whether it speaks TLS. Nothing is sent over this connection, so its certificate does not
// matter.
func (e *endpoint) speaksTLS(ctx context.Context) bool {
	err := e.ask(ctx, func(conn net.Conn) error {
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) // #nosec
	})
	return err == nil || isAlert(err)
}

// listenTLS returns what ends a connection over which nothing is sent.
func (e *endpoint) listenTLS(ctx context.Context) error {
	return e.ask(ctx, func(conn net.Conn) error {
		_, err := tls.Client(conn, e.tls).Read(make([]byte, 1))
		return err
	})
}

// ask opens a connection of its own, and closes it when the question is answered or ctx ends.
func (e *endpoint) ask(ctx context.Context, question func(net.Conn) error) error {
	conn, err := e.dialAddress(ctx, ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	return question(conn)
}
