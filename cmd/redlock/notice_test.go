//go:build unix

package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestRunSaysOnceWhoHoldsTheLockThatItWaitsFor(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	lease, err := newClient(t, f).Mutex("nightly").WithOwner("the backup").Acquire(t.Context())
	require.NoError(t, err)
	p := start(t, nil, nil, "run", nodes(f), "nightly", "--", "true")
	silent := start(t, nil, nil, "run", nodes(f), "--json", "nightly", "--", "true")
	eventually(t, "the line", func() bool { return p.said() != "" })
	time.Sleep(2500 * time.Millisecond) // time for two more notices
	require.NoError(t, lease.Release(t.Context()))
	code, _, errs := p.wait()
	require.Equal(t, 0, code, errs)
	require.Regexp(t, `^redlock: waiting \(--wait forever\): nightly is held by [^ ]+/[0-9]+ \(the backup\), for [0-9.]+m?s unless it is renewed\n$`, errs)
	code, _, errs = silent.wait()
	require.Equal(t, 0, code, errs)
	require.Equal(t, 1, strings.Count(errs, "\n"))
	require.True(t, json.Valid([]byte(errs)), errs)
}

func TestRunOnNewServersSaysWhatEndsTheQuarantine(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	p := start(t, nil, nil, "run", nodes(f), "k", "--", "true")
	eventually(t, "the line", func() bool { return p.said() != "" })
	assert.Regexp(t, `^redlock: waiting \(--wait forever\): 0 of 3 nodes vote, and it takes 2; [^\n]*quarantine[^\n]*redlock enroll[^\n]*\n$`, p.said())
	code, _, errs := run(t, "enroll", nodes(f))
	require.Equal(t, 0, code, errs)
	code, _, errs = p.wait()
	require.Equal(t, 0, code, errs)
}

// A run that begins while no node answers learns what they hold when they are back. With the defaults it would differ from
// them, and they would refuse it.
func TestARunThatBeginsInAnOutageTakesWhatTheNodesHold(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3, Links: true})
	code, _, errs := run(t, "enroll", nodes(f), "--max-ttl=2m", "--yes")
	require.Equal(t, 0, code, errs)
	everyNode(t, f, (*fleet.Node).Cut)
	code, _, errs = run(t, "run", nodes(f), "--wait=0", "--at-least=1m", "k", "--", "true")
	require.Equal(t, 69, code, errs)
	require.Regexp(t, `^redlock: too few nodes answer \(0 of 3, and it takes 2\): .+; redlock doctor says why and what to do\n$`, errs)
	var waiting []*process
	for i, flags := range [][]string{nil, {"--ttl=1m"}, {"--at-least=1m", "--wait=1m"}} {
		args := append([]string{"run", nodes(f)}, flags...)
		p := start(t, nil, nil, append(args, fmt.Sprint("k", i), "--", "true")...)
		eventually(t, "the line", func() bool { return p.said() != "" })
		waiting = append(waiting, p)
	}
	everyNode(t, f, (*fleet.Node).Heal)
	for _, p := range waiting {
		code, _, errs := p.wait()
		require.Equal(t, 0, code, errs)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
}

func TestInspectShowsNoFencingTokenOfANodeThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	require.NoError(t, f.Nodes()[2].Kill())
	code, out, errs := run(t, "inspect", nodes(f), "k")
	require.Equal(t, 0, code, errs)
	require.Equal(t, 2, len(regexp.MustCompile(`(?m)^\S+ +– +– +0 +yes$`).FindAllString(out, -1)), out)
	require.Regexp(t, `(?m)^`+namesOf(f.Nodes()[2:])+` +\? +– +\? +no: `, out)
}

func TestInspectSaysUnknownWhereTooFewNodesVote(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{})
	lease, err := newClient(t, f).Mutex("held").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Extend(t.Context())) // now every node has it, or is just getting it
	eventually(t, "the key on every node", func() bool {
		for _, n := range f.Nodes() {
			if do(t, n, "GET", "held") == nil {
				return false
			}
		}
		return true
	})
	for _, n := range f.Nodes()[1:] { // they answer, but do not vote
		do(t, n, "FLUSHALL")
	}
	code, out, errs := run(t, "inspect", nodes(f), "other")
	require.Equal(t, 69, code)
	require.Contains(t, out, "other: unknown: too few nodes vote (1 of 5 nodes, and it takes 3)")
	require.NotContains(t, out, "free")
	require.Equal(t, 4, strings.Count(out, "  no: "), out)
	require.Contains(t, out, "no: in quarantine")
	require.Contains(t, errs, "redlock doctor")
	code, out, _ = run(t, "inspect", nodes(f), "held")
	require.Equal(t, 69, code)
	require.Regexp(t, `[^ ]+/[0-9]+ has it on 1 of 5 nodes`, out)
	code, out, errs = run(t, "inspect", "--json", nodes(f), "other")
	require.Equal(t, 69, code)
	require.Empty(t, errs)
	var l struct {
		State, Kind, Error string
		Votes, Quorum      int
	}
	require.NoError(t, json.Unmarshal([]byte(out), &l), out)
	require.Equal(t, "unknown", l.State)
	require.Equal(t, "no-quorum", l.Kind)
	require.NotEmpty(t, l.Error)
	require.Equal(t, []int{1, 3}, []int{l.Votes, l.Quorum})
	_ = lease.Release(t.Context())
}

func TestReleaseDeletesOnlyWhatIsALockUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	first := f.Nodes()[0]
	const token = "0123456789abcdef0123456789abcdef"
	for name, set := range map[string][]any{
		"data that expires":                                       {"k", "a session", "PX", 60000},
		"data that does not":                                      {"k", token},
		"an empty string":                                         {"k", "", "PX", 60000},
		"the text of a reservation":                               {"k", "next:/home?p=2", "PX", 60000},
		"the text of readers":                                     {"k", "readers"},
		"the text of permits, muted":                              {"k", "PERMITS", "PX", 60000},
		"what begins as an entry of those that share a lock":      {"k", "reader of the news", "PX", 60000},
		"what looks like an entry of those that share a lock":     {"k", "reader " + token, "PX", 60000},
		"what looks like an entry of those that have its permits": {"k", "permit 0/2 " + token, "PX", 60000},
	} {
		do(t, first, "SET", set...)
		code, out, errs := run(t, "inspect", nodes(f), "k")
		assert.Equal(t, 0, code, errs)
		assert.Contains(t, out, " has it on 1 of 3 nodes", name)
		assert.Regexp(t, `\(not a lock of this library\) +[f0-9]|something that is not a lock|`+token+" +for ever", out, name)
		code, out, errs = run(t, "release", "--force", nodes(f), "k")
		assert.Equal(t, 64, code, name)
		assert.Empty(t, out, name)
		assert.Contains(t, errs, "--foreign", name)
		assert.EqualValues(t, 1, do(t, first, "EXISTS", "k"), name)
		code, out, errs = run(t, "release", "--force", "--foreign", nodes(f), "k")
		assert.Equal(t, 0, code, errs)
		assert.Contains(t, out, "no quorum had k; it was deleted on 1 of 3 nodes", name)
		assert.NotContains(t, out, "was released", name)
		assert.EqualValues(t, 0, do(t, first, "EXISTS", "k"), name)
	}
	do(t, first, "HSET", "k", "no", "lock")
	code, _, errs := run(t, "release", "--force", "--foreign", nodes(f), "k")
	assert.Equal(t, 64, code)
	assert.Contains(t, errs, "by hand")
	assert.EqualValues(t, 1, do(t, first, "EXISTS", "k"))
	do(t, first, "DEL", "k")

	do(t, first, "SET", "k", token, "PX", 60000) // a minority: a try that failed
	code, out, _ := run(t, "inspect", nodes(f), "k")
	assert.Equal(t, 0, code)
	assert.Contains(t, out, "k is free")
	assert.Contains(t, out, token+" has it on 1 of 3 nodes")
	code, out, errs = run(t, "release", "--force", "--json", nodes(f), "k")
	assert.Equal(t, 0, code, errs)
	assert.Contains(t, out, `"released":true`)
	assert.True(t, json.Valid([]byte(out)), "one line: %s", out)
	assert.EqualValues(t, 0, do(t, first, "EXISTS", "k"))
}

func TestInspectSaysWhereALockIsNeitherHeldNorFree(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for i, n := range f.Nodes()[:2] { // two tries that split the votes
		do(t, n, "SET", "k", strings.Repeat("ab"[i:i+1], 32), "PX", 60000)
	}
	code, out, _ := run(t, "inspect", "--json", nodes(f), "k")
	require.Equal(t, 0, code)
	require.Contains(t, out, `"state":"partial"`)
	_, out, _ = run(t, "inspect", nodes(f), "k")
	require.Contains(t, out, "k is being taken or released")
	require.Contains(t, out, "aaaa has it on 1 of 3 nodes, bbbb")
}

func TestDoctorSaysWhatAnswersInsteadOfTheServer(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 1})
	plain := strings.TrimPrefix(f.URLs()[0], "redis://")
	secure := listenTLS(t)
	web := answering(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	page := answering(t, "<!DOCTYPE HTML>\n") // as web servers answer what has no version of HTTP
	other := answering(t, "$J\r\n")
	mute := answering(t, "") // it ends each connection
	for url, want := range map[string]string{
		"rediss://" + plain: "it speaks plain Redis there and no TLS; write redis://",
		"redis://" + secure: "it speaks TLS there; write rediss://",
		secure:              "it speaks TLS there; write rediss://",
		web:                 "what answers there is no Redis server: check the port",
		page:                "bad response line terminator (possible server error or unsupported concurrent read by application); what answers there is no Redis server: check the port",
		other:               "what answers there is no Redis server: check the port",
		mute:                "perhaps what answers there is no Redis server: check the port",
		"127.0.0.1:1":       "connection refused",
	} {
		code, out, _ := run(t, "doctor", "--nodes", url)
		for tries := 0; strings.Contains(out, "was not over within") && tries < 10; tries++ { // on a busy machine
			code, out, _ = run(t, "doctor", "--nodes", url)
		}
		assert.Equal(t, 1, code)
		assert.Contains(t, out, want, url)
		assert.NotContains(t, out, "not connected yet", url)
	}
}

// answering answers each connection so, as a server does that does not understand what it reads, until the test ends. One
// that has no answer ends the connection.
func answering(t *testing.T, text string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				if text == "" {
					conn.Close()
					return
				}
				_, _ = io.WriteString(conn, text)
				_, _ = io.Copy(io.Discard, conn) // until the client has closed it
				conn.Close()
			})
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	return listener.Addr().String()
}

// listenTLS accepts TLS connections and sends nothing, until the test ends.
func listenTLS(t *testing.T) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).HandshakeContext(t.Context())
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-ended })
	return listener.Addr().String()
}

func TestOneOfAThingIsNotSeveral(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	_, fresh, _ := run(t, "doctor", nodes(f))
	_, unknown, _ := run(t, "inspect", nodes(f), "k")
	_, enrolled, _ := run(t, "enroll", nodes(f))
	_, healthy, _ := run(t, "doctor", nodes(f))
	_, free, _ := run(t, "inspect", nodes(f), "k")
	_, bench, progress := run(t, "bench", nodes(f), "--node-timeout=3s", "--seconds=0.05", "--goroutines=1")
	for _, text := range []string{fresh, unknown, enrolled, healthy, free, bench, progress} {
		assert.NotEmpty(t, text)
		assert.NotRegexp(t, `\b1 (nodes|goroutines)\b`, text)
	}
	assert.Contains(t, enrolled, "1 node enrolled")
}

// A key of another program never expires, or it may be a lock of another library.
func TestAKeyOfAnotherProgramIsCalledThat(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, n := range f.Nodes() {
		do(t, n, "SET", "k", "foo")
		do(t, n, "SET", "of-redsync", "bXkgdmFsdWUgaXMgdGhhdA==", "PX", 60000)
	}
	_, err := newClient(t, f).RWMutex("shared").Reader().Acquire(t.Context())
	require.NoError(t, err)
	code, out, errs := run(t, "inspect", nodes(f), "--node-timeout=2s", "k", "of-redsync", "shared") // a busy machine may be slow
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "k is held by foo (not a lock of this library) on 3 of 3 nodes, without expiry; largest")
	require.Regexp(t, `of-redsync is held by bXkgdmFsdWUgaXMgdGhhdA== \(not a lock of this library\) on 3 of 3 nodes, for [0-9.]+m?s unless it is renewed;`, out)
	require.Equal(t, 2+6, strings.Count(out, "not a lock of this library"), out)
	code, _, errs = run(t, "run", "--wait=6s", nodes(f), "k", "--", "true")
	require.Equal(t, 64, code)
	require.Contains(t, errs, `k is held by "foo" (not a lock of this library), without expiry`)
	require.Regexp(t, `k is not a lock: on [23] nodes it is "foo", which never expires`, errs)
	for _, n := range f.Nodes() {
		do(t, n, "RPUSH", "list", "x")
	}
	code, _, errs = run(t, "run", "--wait=6s", nodes(f), "list", "--", "true")
	require.Equal(t, 64, code)
	require.Contains(t, errs, "list is held by something that is not a lock, without expiry")
}

func TestAFileOfPasswordsThatOthersMayReadDrawsAWarning(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	file := filepath.Join(t.TempDir(), "nodes")
	inspect := func(mode os.FileMode, list string, flags ...string) string {
		require.NoError(t, os.WriteFile(file, []byte(list), mode))
		require.NoError(t, os.Chmod(file, mode))
		_, _, errs := run(t, append([]string{"inspect", "k", "--nodes-file", file}, flags...)...)
		return errs
	}
	plain := strings.Join(f.URLs(), "\n")
	secret := strings.ReplaceAll(plain, "://", "://default:SECRET@")
	const warning = "has passwords, and other users of this host may read it; chmod 600 "
	require.Contains(t, inspect(0o644, secret), "redlock: --nodes-file: "+file+" "+warning+file+"\n")
	require.NotContains(t, inspect(0o644, secret), "SECRET")
	require.NotContains(t, inspect(0o644, secret, "--json"), warning)
	require.NotContains(t, inspect(0o640, secret), warning)
	require.NotContains(t, inspect(0o644, plain), warning)
}
