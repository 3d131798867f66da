//go:build unix

package main_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// A secured fleet demands a certificate and a login: redis-server's own TLS port, and the user locker.
type secured struct {
	*fleettest.Authority
	nodes, password string
}

func startSecured(t *testing.T) *secured {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	s := &secured{Authority: fleettest.NewAuthority(t), password: filepath.Join(t.TempDir(), "password")}
	require.NoError(t, os.WriteFile(s.password, []byte("p@ss/word\n"), 0o600))
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "locker", "on", ">p@ss/word", "~*", "&*", "+@all")
	}
	s.nodes = "rediss://" + strings.Join(s.Secure(t, f.Nodes(), "yes"), ",rediss://")
	for _, n := range f.Nodes() {
		do(t, n, "ACL", "SETUSER", "default", "off")
	}
	return s
}

func (s *secured) flags() []string {
	return []string{"--nodes", s.nodes, "--ca", s.CA, "--cert", s.ClientCert, "--key", s.ClientKey, "--user", "locker", "--password-file", s.password}
}

func (s *secured) environment() []string {
	return []string{"REDLOCK_NODES=" + s.nodes, "REDLOCK_CA=" + s.CA, "REDLOCK_CERT=" + s.ClientCert,
		"REDLOCK_CERT_KEY=" + s.ClientKey, "REDLOCK_USER=locker", "REDLOCK_PASSWORD_FILE=" + s.password}
}

func TestEveryCommandTalksToServersThatDemandACertificateAndALogin(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	code, _, errs := run(t, with([]string{"enroll"}, s.flags()...)...)
	require.Equal(t, 0, code, errs)
	for name, command := range talkers() {
		code, out, errs := run(t, with(command, s.flags()...)...)
		assert.Equal(t, 0, code, "%s by flags: %s%s", name, out, errs)
		code, out, errs = start(t, nil, s.environment(), command...).wait()
		assert.Equal(t, 0, code, "%s by the environment: %s%s", name, out, errs)
	}
	both := filepath.Join(t.TempDir(), "both.pem") // a certificate and its key in one file
	cert, err := os.ReadFile(s.ClientCert)
	require.NoError(t, err)
	key, err := os.ReadFile(s.ClientKey)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(both, append(cert, key...), 0o600))
	code, out, _ := run(t, "doctor", "--nodes", s.nodes, "--ca", s.CA, "--cert", both, "--user", "locker", "--password-file", s.password)
	assert.Equal(t, 0, code, out)
}

func TestAMistakeAboutTLSOrTheLoginIsNamedWithItsRemedy(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	dir := t.TempDir()
	empty, garbage := filepath.Join(dir, "empty"), filepath.Join(dir, "garbage")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(garbage, []byte("no PEM"), 0o600))
	for name, c := range map[string]struct {
		code  int
		flags []string
		said  string
	}{
		"no CA":             {1, []string{"--nodes", s.nodes}, "give that one with --ca"},
		"no certificate":    {1, []string{"--nodes", s.nodes, "--ca", s.CA}, "demands a client certificate; give one with --cert and --key"},
		"no login":          {1, []string{"--nodes", s.nodes, "--ca", s.CA, "--cert", s.ClientCert, "--key", s.ClientKey}, "NOAUTH"},
		"no such CA":        {64, []string{"--nodes", s.nodes, "--ca", "/nonexistent"}, "--ca: open /nonexistent"},
		"not a CA":          {64, []string{"--nodes", s.nodes, "--ca", garbage}, "no certificate in PEM form"},
		"not a certificate": {64, []string{"--nodes", s.nodes, "--cert", garbage}, "--cert: "},
		"another key":       {64, []string{"--nodes", s.nodes, "--cert", s.ClientCert, "--key", s.ServerKey}, "--cert: "},
		"a key alone":       {64, []string{"--nodes", s.nodes, "--key", s.ClientKey}, "give --cert too"},
		"nothing encrypted": {64, []string{"--nodes", "127.0.0.1:1", "--ca", s.CA}, "nothing would be encrypted; write rediss://"},
		"a user alone":      {64, []string{"--nodes", s.nodes, "--user", "locker"}, "give --password-file too"},
		"no password file":  {64, []string{"--nodes", s.nodes, "--password-file", "/nonexistent"}, "--password-file: open"},
		"no password":       {64, []string{"--nodes", s.nodes, "--password-file", empty}, "is empty"},
		"two logins":        {64, []string{"--nodes", "redis://u:p@127.0.0.1:1", "--password-file", s.password}, "every URL has a login of its own"},
	} {
		code, out, errs := run(t, with([]string{"doctor"}, c.flags...)...)
		assert.Equal(t, c.code, code, "%s: %s%s", name, out, errs)
		assert.Contains(t, out+errs, c.said, name)
		assert.NotContains(t, out+errs, "p@ss", name)
	}
	code, _, errs := start(t, nil, []string{"REDLOCK_NODES=a:1", "REDLOCK_NODES_FILE=b"}, "doctor").wait()
	assert.Equal(t, 64, code)
	assert.Contains(t, errs, "REDLOCK_NODES and REDLOCK_NODES_FILE exclude each other")
	code, _, errs = start(t, nil, []string{"REDLOCK_NODES_FILE=/nonexistent"}, "doctor").wait()
	assert.Equal(t, 64, code)
	assert.Contains(t, errs, "REDLOCK_NODES_FILE: open /nonexistent")
}

// The command under the lock does not get the passwords of the nodes, however redlock got them.
func TestTheCommandDoesNotGetTheSecretsOfTheNodes(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3, Args: []string{"--requirepass", "hunter2"}})
	list := strings.Join(f.URLs(), ",")
	require.Contains(t, list, "hunter2")
	file := filepath.Join(t.TempDir(), "nodes")
	require.NoError(t, os.WriteFile(file, []byte(list), 0o600))

	env := []string{"REDLOCK_NODES=" + list}
	code, out, errs := start(t, nil, env, "run", "k", "--", "env").wait()
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "REDLOCK_FENCE=")
	require.NotContains(t, out, "hunter2")
	code, out, errs = start(t, nil, env, "run", "--pass-nodes", "k", "--", "env").wait()
	require.Equal(t, 0, code, errs)
	require.Contains(t, out, "hunter2", "asked for")
	code, _, errs = start(t, nil, env, "run", "k", "--", binary, "inspect", "k").wait()
	require.Equal(t, 64, code)
	require.Contains(t, errs, "this runs under redlock run, which takes REDLOCK_NODES out of the environment of its command")
	code, _, errs = start(t, nil, env, "run", "--pass-nodes", "k", "--", binary, "inspect", "k").wait()
	require.Equal(t, 0, code, errs)

	p := start(t, nil, []string{"REDLOCK_NODES_FILE=" + file}, "run", "k", "--", "env")
	code, out, errs = p.wait()
	require.Equal(t, 0, code, errs)
	require.NotContains(t, out, "hunter2")

	// The command could open a descriptor that it inherits a second time, from the beginning.
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("/dev/fd/7", link))
	redirects := map[string]string{"-": `<"$NODES"`, "/dev/stdin": `<"$NODES"`, file: `<"$NODES"`}
	for _, seventh := range []string{"/dev/fd/7", "/proc/self/fd/7", "/proc/thread-self/fd/7", "//dev/fd/../fd/7", "fd/7", link} {
		redirects[seventh] = `7<"$NODES"`
	}
	for flag, redirect := range redirects {
		fd := "0"
		if strings.HasPrefix(redirect, "7") {
			fd, redirect = "7", redirect+"; cd /dev"
		}
		code, out, errs = shell(t, `exec `+redirect+`; exec "$0" "$@"`, []string{"NODES=" + file},
			"run", "--nodes-file", flag, "k", "--", "sh", "-c", "cat /proc/self/fd/"+fd+"; echo done")
		require.Equal(t, 0, code, errs)
		require.Contains(t, out, "done")
		require.NotContains(t, out, "hunter2", flag)
	}
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("hunter2"), 0o600))
	var bare []string
	for _, n := range f.Nodes() {
		u, err := url.Parse(n.URL())
		require.NoError(t, err)
		bare = append(bare, u.Host)
	}
	code, out, errs = shell(t, `exec "$0" "$@" <"$PASSWORD"`, []string{"PASSWORD=" + password},
		"run", "--nodes", strings.Join(bare, ","), "--password-file", "/dev/stdin", "k", "--", "sh", "-c", "cat; echo done")
	require.Equal(t, 0, code, errs)
	require.Equal(t, "done\n", out)
}

// shell runs the script with the binary as $0.
func shell(t *testing.T, script string, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return startProgram(t, nil, env, "bash", append([]string{"-c", script, binary}, args...)...).wait()
}

// <(vault …) of a shell is a pipe.
func TestTheKeyOfACertificateMayComeByAPipe(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	code, _, errs := run(t, with([]string{"enroll"}, s.flags()...)...)
	require.Equal(t, 0, code, errs)
	code, out, errs := shell(t, `exec "$0" "$@" --key <(cat "$KEY") --password-file <(cat "$PASSWORD")`, []string{"KEY=" + s.ClientKey, "PASSWORD=" + s.password},
		"doctor", "--nodes", s.nodes, "--ca", s.CA, "--cert", s.ClientCert, "--user", "locker")
	require.Equal(t, 0, code, "%s%s", out, errs)
}
