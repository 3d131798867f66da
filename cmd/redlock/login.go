package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock"
)

// loginFlags are the flags about TLS and the login. Each of them has an environment variable.
type loginFlags struct {
	ca, cert, certKey, user, passwordFile string

	readStdin bool // nodes or secrets were read from standard input
}

// The environment variables. That of --key is not REDLOCK_KEY: redlock run gives its command the name of the lock there.
const (
	caEnv           = "REDLOCK_CA"
	certEnv         = "REDLOCK_CERT"
	certKeyEnv      = "REDLOCK_CERT_KEY"
	userEnv         = "REDLOCK_USER"
	passwordFileEnv = "REDLOCK_PASSWORD_FILE"
)

func (l *loginFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&l.ca, "ca", "",
		"`FILE` with the certificate authorities of rediss:// nodes, instead of those of this host (default $"+caEnv+")")
	flags.StringVar(&l.cert, "cert", "", "`FILE` with the client certificate for rediss:// nodes (default $"+certEnv+")")
	flags.StringVar(&l.certKey, "key", "",
		"`FILE` with the private key of --cert (default $"+certKeyEnv+", or the file of --cert)")
	flags.StringVar(&l.user, "user", "",
		"`NAME` of the Redis user for nodes whose URL has no login; needs --password-file (default $"+userEnv+", or the server's default user)")
	flags.StringVar(&l.passwordFile, "password-file", "",
		"`FILE` with the password for these nodes; each new connection reads it again (default $"+passwordFileEnv+")")
}

// A given is what the user gave, and where.
type given struct{ value, by string }

// from returns the value of a flag, else that of the environment variable.
func from(value, flag, env string) given {
	if value != "" {
		return given{value, flag}
	}
	return given{os.Getenv(env), env}
}

// apply gives the nodes TLS and a login, as far as their URLs ask for it.
func (l *loginFlags) apply(nodes []redlock.Node) error {
	config, by, err := l.tls()
	if err != nil {
		return err
	}
	credentials, loginBy, err := l.login()
	if err != nil {
		return err
	}
	secured, loggedIn := 0, 0
	for i := range nodes {
		n := &nodes[i]
		u, err := url.Parse(n.URL)
		if err != nil || !strings.Contains(n.URL, "://") {
			if u, err = url.Parse("redis://" + n.URL); err != nil {
				continue // redlock.New says what is wrong with it
			}
		}
		if u.Scheme == "rediss" {
			secured++
			n.TLS = config
		}
		if u.User == nil {
			loggedIn++
			n.Credentials = credentials
		}
	}
	switch {
	case config != nil && secured == 0:
		return usage("%s is given, but no node is rediss://, so nothing would be encrypted; write rediss://host:port", by)
	case credentials != nil && loggedIn == 0:
		return usage("%s is given, but every URL has a login of its own; remove one of them", loginBy)
	}
	return nil
}

// tls returns the TLS configuration, nil for the usual one. by is what asked for it.
func (l *loginFlags) tls() (config *tls.Config, by string, err error) {
	ca, cert := from(l.ca, "--ca", caEnv), from(l.cert, "--cert", certEnv)
	key := from(l.certKey, "--key", certKeyEnv)
	switch {
	case key.value != "" && cert.value == "":
		return nil, "", usage("%s is given without a certificate; give --cert too", key.by)
	case ca.value == "" && cert.value == "":
		return nil, "", nil
	}
	config, by = &tls.Config{}, ca.by
	if ca.value != "" {
		text, err := os.ReadFile(ca.value)
		if err != nil {
			return nil, "", usage("%s: %w", ca.by, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, "", usage("%s: %s has no certificate in PEM form", ca.by, ca.value)
		}
	}
	if cert.value == "" {
		return config, by, nil
	}
	if key.value == "" {
		key.value = cert.value
	}
	l.hide(key.value)
	load, err := rereading(func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert.value, key.value)
		return &pair, err
	}, cert.value, key.value)
	if err != nil {
		return nil, "", usage("%s: %w", cert.by, err)
	}
	// Each connection reads the files again: certificates are often short-lived.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	if ca.value == "" {
		by = cert.by
	}
	return config, by, nil
}

// rereading returns read, after a first try of it. Where a file cannot be read a second time, as a pipe, it returns what
// has the first result.
func rereading[T any](read func() (T, error), files ...string) (func() (T, error), error) {
	first, err := read()
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		if about, err := os.Stat(path); err != nil || !about.Mode().IsRegular() {
			return func() (T, error) { return first, nil }, nil
		}
	}
	return read, nil
}

type credentials = func(context.Context) (user, password string, err error)

// login returns the credentials for nodes whose URL has none; nil if there are none. by is what asked for them.
func (l *loginFlags) login() (ask credentials, by string, err error) {
	user, file := from(l.user, "--user", userEnv), from(l.passwordFile, "--password-file", passwordFileEnv)
	switch {
	case file.value == "" && user.value == "":
		return nil, "", nil
	case file.value == "":
		return nil, "", usage("%s is given without a password; give --password-file too", user.by)
	}
	l.hide(file.value)
	read, err := rereading(func() (string, error) { return readPassword(file.value) }, file.value)
	if err != nil {
		return nil, "", usage("%s: %w", file.by, err)
	}
	return func(context.Context) (string, string, error) {
		password, err := read()
		return user.value, password, err
	}, file.by, nil
}

// maxPassword bounds how much of a password file is read.
const maxPassword = 64 << 10

// readPassword returns the first line of the file.
func readPassword(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxPassword))
	if err != nil {
		return "", err
	}
	password, _, _ := strings.Cut(string(text), "\n")
	if password = strings.TrimSuffix(password, "\r"); password == "" {
		return "", errors.New("its first line, which should be the password, is empty")
	}
	return password, nil
}

// hide keeps a file that has secrets from the command of redlock run, where the command would get it from redlock: as a
// descriptor of redlock's caller (/dev/fd/3, however that is written), or as standard input, which it could read again.
func (l *loginFlags) hide(path string) {
	about, err := os.Stat(path)
	if err != nil {
		return // then it cannot be read either
	}
	hideDescriptors(about)
	if stdin, err := os.Stdin.Stat(); err == nil && os.SameFile(about, stdin) {
		l.readStdin = true
	}
}

// childEnviron is redlock's environment without what has secrets, unless asked for, and with what is added.
func (o *runOptions) childEnviron(added []string) []string {
	var environ []string
	for _, variable := range os.Environ() {
		if o.passNodes || !strings.HasPrefix(variable, nodesEnv+"=") {
			environ = append(environ, variable)
		}
	}
	return append(environ, added...)
}

// childStdin is the standard input of the command; nil is an empty one. Where redlock has read nodes or secrets from its
// own, the command could rewind it and read them too.
func (o *runOptions) childStdin() io.Reader {
	if o.readStdin {
		return nil
	}
	return os.Stdin
}
