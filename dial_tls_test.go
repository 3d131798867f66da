package redlock_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// secureNodes are these addresses, with one TLS configuration for all.
func secureNodes(addresses []string, config *tls.Config) func(*redlock.Config) {
	return func(cfg *redlock.Config) {
		cfg.Nodes = nil
		for _, address := range addresses {
			cfg.Nodes = append(cfg.Nodes, redlock.Node{URL: "rediss://" + address, TLS: config})
		}
	}
}

// A private authority, and servers that demand a client certificate: redis-server's own TLS.
func TestConnectsToServersThatDemandAClientCertificate(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	authority := fleettest.NewAuthority(t)
	addresses := authority.Secure(t, f.Nodes(), "yes")
	works(t, f, open(t, f, secureNodes(addresses,
		&tls.Config{RootCAs: authority.Roots(t), Certificates: []tls.Certificate{authority.Client(t)}})), 0)
}

// What is wrong about TLS is said with its remedy, by Status and by the error of a round.
func TestWhatIsWrongAboutTLSIsSaidWithItsRemedy(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	demanding := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	authority, other := fleettest.NewAuthority(t), fleettest.NewAuthority(t)
	plain := strings.TrimPrefix(f.URLs()[0], "redis://")
	secure := authority.Secure(t, f.Nodes(), "no")[0]
	demands := authority.Secure(t, demanding.Nodes(), "yes")[0]
	_, port, err := net.SplitHostPort(secure)
	require.NoError(t, err)
	trusting := &tls.Config{RootCAs: authority.Roots(t)}
	old := trusting.Clone()
	old.MaxVersion = tls.VersionTLS12
	late := trusting.Clone()
	late.Time = func() time.Time { return time.Now().Add(24 * time.Hour) }
	strange := trusting.Clone()
	strange.Certificates = []tls.Certificate{other.Client(t)}
	for name, c := range map[string]struct {
		node redlock.Node
		said string
	}{
		"TLS on a plain port":          {redlock.Node{URL: "rediss://" + plain}, "it speaks plain Redis there and no TLS; write redis://"},
		"plain on a TLS port":          {redlock.Node{URL: "redis://" + secure}, "it speaks TLS there; write rediss://"},
		"plain where TLS demands more": {redlock.Node{URL: "redis://:secret@" + demands}, "it speaks TLS there; write rediss://"},
		"an unknown authority":         {redlock.Node{URL: "rediss://" + secure}, "Node.TLS.RootCAs (--ca)"},
		"another authority":            {redlock.Node{URL: "rediss://" + secure, TLS: &tls.Config{RootCAs: other.Roots(t)}}, "Node.TLS.RootCAs (--ca)"},
		"another name":                 {redlock.Node{URL: "rediss://localhost:" + port, TLS: trusting}, "by a name that is in its certificate"},
		"a certificate that expired":   {redlock.Node{URL: "rediss://" + secure, TLS: late}, "renew the certificate of the server"},
		"no client certificate":        {redlock.Node{URL: "rediss://" + demands, TLS: trusting}, "demands a client certificate"},
		"none, with TLS 1.2":           {redlock.Node{URL: "rediss://" + demands, TLS: old}, "demand a client certificate"},
		"another client certificate":   {redlock.Node{URL: "rediss://" + demands, TLS: strange}, "it does not accept the client certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := openFresh(t, f, patient, func(cfg *redlock.Config) { cfg.Nodes = []redlock.Node{c.node} })
			require.ErrorContains(t, cl.Status(soon(t))[0].Err, c.said)
			_, err := cl.Mutex("x").TryAcquire(soon(t))
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, c.said)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

// Nothing is said about TLS where it has nothing to do with the failure.
func TestAConnectionThatBreaksOtherwiseIsNotBlamedOnTLS(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() { // accepts, and hangs up
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-ended })
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	paused := strings.TrimPrefix(f.URLs()[0], "redis://")
	require.NoError(t, f.Nodes()[0].Pause())
	for _, url := range []string{"redis://" + listener.Addr().String(), "rediss://" + listener.Addr().String(),
		"redis://" + paused, "rediss://" + paused, "rediss://127.0.0.1:1"} {
		cl := openFresh(t, f, func(cfg *redlock.Config) {
			cfg.Nodes, cfg.NodeTimeout = redlock.Nodes(url), 50*time.Millisecond
		})
		var status redlock.NodeStatus
		require.Eventually(t, func() bool {
			status = cl.Status(soon(t))[0]
			return status.Err.Error() != "not connected yet"
		}, 10*time.Second, time.Millisecond)
		require.Error(t, status.Err, url)
		require.NotContains(t, status.Err.Error(), "speaks", url)
		require.NotContains(t, status.Err.Error(), "certificate", url)
	}
}
