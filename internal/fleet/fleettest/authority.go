package fleettest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/server"
	"github.com/quorumlock/redlock/internal/required"
)

// An Authority is a private certificate authority, with a certificate for servers at 127.0.0.1 and one for clients. Its
// fields are the names of PEM files, which are removed when the test ends.
type Authority struct {
	CA, ServerCert, ServerKey, ClientCert, ClientKey string
}

// NewAuthority makes an authority and its certificates.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	dir := t.TempDir()
	authority, key, err := issue("authority",
		&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	server, serverKey, err2 := issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, authority, key)
	client, clientKey, err3 := issue("client", &x509.Certificate{}, authority, key)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	writeKey := func(name string, key *ecdsa.PrivateKey) string {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return write(name, "PRIVATE KEY", der)
	}
	const certificate = "CERTIFICATE"
	return &Authority{CA: write("ca.pem", certificate, authority.Raw),
		ServerCert: write("server.pem", certificate, server.Raw), ServerKey: writeKey("server.key", serverKey),
		ClientCert: write("client.pem", certificate, client.Raw), ClientKey: writeKey("client.key", clientKey)}
}

// issue makes a key, and a certificate for it. A certificate without an issuer is its own.
func issue(name string, template, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.Subject = pkix.Name{CommonName: name} // OpenSSL finds issuers by name
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if issuer == nil {
		issuer, issuerKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	return parsed, key, err
}

// Roots has the authority's certificate.
func (a *Authority) Roots(t testing.TB) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(a.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatalf("%s has no certificate", a.CA)
	}
	return roots
}

// Client is the certificate for clients.
func (a *Authority) Client(t testing.TB) tls.Certificate {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(a.ClientCert, a.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// Secure makes each server listen on a TLS port of its own too, until it ends. It returns these addresses. If clients
// is "yes", a client must have a certificate of the authority; if "no", it need not. A server that was built without TLS,
// or is older than Redis 6.2, skips the test, unless it is required.
func (a *Authority) Secure(t testing.TB, nodes []*fleet.Node, clients string) (addresses []string) {
	t.Helper()
	for _, n := range nodes {
		address, err := a.secure(n, clients)
		if err != nil && strings.Contains(err.Error(), "Unsupported CONFIG parameter") {
			required.Missing(t, "redis-6.2", fmt.Errorf("%s cannot open a TLS port while it runs: %w", n.Name(), err))
		}
		if err != nil {
			required.Missing(t, requirement[fleet.Process], fmt.Errorf("%s opens no TLS port: %w", n.Name(), err))
		}
		addresses = append(addresses, address)
	}
	return addresses
}

func (a *Authority) secure(n *fleet.Node, clients string) (address string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := n.DialDirect(ctx, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	for range 5 { // where a port cannot be reserved, another process may take it
		var port string
		if port, err = a.listen(conn, clients); err == nil {
			return net.JoinHostPort("127.0.0.1", port), nil
		}
	}
	return "", err
}

// listen sets the port last. Before Redis 7.0, CONFIG SET takes one setting at a time, and tries those of TLS as soon as
// there is a port.
func (a *Authority) listen(conn redis.Conn, clients string) (port string, err error) {
	number, release, err := server.Reserve()
	if err != nil {
		return "", err
	}
	defer release()
	port = strconv.Itoa(number)
	for _, setting := range [][2]string{{"tls-port", "0"}, {"tls-auth-clients", clients}, {"tls-cert-file", a.ServerCert},
		{"tls-key-file", a.ServerKey}, {"tls-ca-cert-file", a.CA}, {"tls-port", port}} {
		if _, err := conn.Do("CONFIG", "SET", setting[0], setting[1]); err != nil {
			return "", fmt.Errorf("CONFIG SET %s: %w", setting[0], err)
		}
	}
	return port, nil
}
