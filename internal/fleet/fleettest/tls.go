package fleettest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/redlock/internal/fleet"
)

// TLS puts TLS in front of each node until the test ends. It returns the addresses, and the root certificates by which
// a client knows them.
func TLS(t testing.TB, nodes []*fleet.Node) (addresses []string, roots *x509.CertPool) {
	t.Helper()
	cert, roots, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		u, err := url.Parse(n.URL())
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, terminate(t, cert, u.Host))
	}
	return addresses, roots
}

func selfSigned() (tls.Certificate, *x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots, nil
}

// terminate listens with the certificate and forwards to the address, until the test ends.
func terminate(t testing.TB, cert tls.Certificate, to string) string {
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			secure, err := listener.Accept()
			if err != nil {
				return
			}
			plain, err := net.Dial("tcp", to)
			if err != nil {
				secure.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				to.Close()
				from.Close()
			}
			wg.Go(func() { pass(plain, secure) })
			wg.Go(func() { pass(secure, plain) })
		}
	})
	return listener.Addr().String()
}
