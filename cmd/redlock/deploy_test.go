//go:build unix

package main_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

// The files in deploy/ are parsed by the programs that they are for, and do what docs/operations.md says.

const deploy = "../../deploy/"

func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// directives are the settings of a redis.conf, or of a unit of systemd.
func directives(text, separator string) map[string]string {
	found := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line, _, _ := strings.Cut(strings.TrimSpace(lines.Text()), " #")
		name, value, ok := strings.Cut(line, separator)
		if ok && !strings.HasPrefix(line, "#") {
			found[name] = strings.TrimSpace(value)
		}
	}
	return found
}

// startAsDeployed starts servers with the files of deploy/redis, and a password of our own. It returns their URLs.
func startAsDeployed(t *testing.T, count int) (servers []*deployed) {
	fleettest.Require(t, fleet.Process)
	const password = "a-password-of-our-own"
	server, err := fleet.Server()
	require.NoError(t, err)
	dir := t.TempDir()
	acl, conf := filepath.Join(dir, "users.acl"), filepath.Join(dir, "redlock.conf")
	users := strings.Replace(textOf(t, deploy+"redis/users.acl"), "SECRET", password, 1)
	if isOfVersion(t, server, "6.0.") {
		users = regexp.MustCompile(` &\S+`).ReplaceAllString(users, "") // as docs/operations.md says
	}
	require.NoError(t, os.WriteFile(acl, []byte(users), 0o600))
	text := strings.Replace(textOf(t, deploy+"redis/redlock.conf"), "/etc/redlock/users.acl", acl, 1)
	require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
	for range count {
		port := freePort(t)
		s := &deployed{command: []string{server, conf, "--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir()},
			url: fmt.Sprintf("redis://locker:%s@127.0.0.1:%s", password, port)}
		t.Cleanup(s.kill)
		s.start(t)
		servers = append(servers, s)
	}
	return servers
}

// A deployed server runs as the files in deploy/ say.
type deployed struct {
	command []string
	url     string
	cmd     *exec.Cmd
}

func (s *deployed) start(t *testing.T, settings ...string) {
	s.cmd = exec.Command(s.command[0], append(s.command[1:len(s.command):len(s.command)], settings...)...)
	require.NoError(t, s.cmd.Start())
	eventually(t, s.url, func() bool {
		conn, err := s.dial()
		if err == nil {
			_, err = conn.Do("PING") // not while it loads its data
			conn.Close()
		}
		return err == nil
	})
}

// isOfVersion reports whether the server's version begins like this.
func isOfVersion(t *testing.T, server, begin string) bool {
	version, err := exec.Command(server, "--version").Output()
	require.NoError(t, err)
	return strings.Contains(string(version), " v="+begin)
}

func (s *deployed) kill() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() }

func (s *deployed) dial() (redis.Conn, error) {
	return redis.DialURL(s.url, redis.DialReadTimeout(time.Second), redis.DialConnectTimeout(time.Second))
}

func urlsOf(servers []*deployed) (urls []string) {
	for _, s := range servers {
		urls = append(urls, s.url)
	}
	return urls
}

// With the settings for servers that persist each write, nothing is lost in a restart. A server replays the transactions
// of its file, such as the writes of a script, as its default user: without that user's rights it would leave them out,
// and say so in its log alone (https://github.com/redis/redis/issues/14541).
func TestADurableServerOfDeployForgetsNothingInARestart(t *testing.T) {
	t.Parallel()
	var durable []string // the lines of the file that are for this
	_, lines, found := strings.Cut(textOf(t, deploy+"redis/redlock.conf"), "#   appendonly yes\n")
	require.True(t, found)
	for line := range strings.Lines("#   appendonly yes\n" + lines) {
		setting, is := strings.CutPrefix(line, "#   ")
		if !is {
			break
		}
		name, value, _ := strings.Cut(strings.TrimSpace(setting), " ")
		durable = append(durable, "--"+name, value)
	}
	require.Len(t, durable, 8)
	servers := startAsDeployed(t, 3)
	old := isOfVersion(t, servers[0].command[0], "6.")
	if old {
		durable = durable[:6]
	}
	for _, s := range servers {
		s.kill()
		s.start(t, durable...)
	}
	nodes := "--nodes=" + strings.Join(urlsOf(servers), ",")
	code, _, errs := run(t, "enroll", "--only-new", "--durable", nodes)
	require.Equal(t, 0, code, errs)
	code, out, _ := run(t, "doctor", nodes)
	require.Equal(t, 0, code, out)
	code, _, errs = run(t, "run", "--at-least=25s", nodes, "tick", "--", "true")
	require.Equal(t, 0, code, errs)
	for _, s := range servers {
		s.kill()
		s.start(t, durable...)
	}
	code, out, _ = run(t, "doctor", nodes)
	require.Equal(t, 0, code, out)
	code, _, errs = run(t, "run", "--wait=0", nodes, "tick", "--", "true")
	require.Equal(t, 75, code, "the lock is kept: %s", errs)
	if old {
		return
	}

	// As the file says of the last line.
	inThird := nodes[:len("--nodes=")] + strings.Join(urlsOf(servers), "/3,") + "/3"
	code, _, errs = run(t, "enroll", "--only-new", "--durable", inThird)
	require.Equal(t, 0, code, errs)
	s := servers[0]
	s.kill()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, s.command[0], slices.Concat(s.command[1:], durable, []string{"--databases", "2"})...).CombinedOutput()
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "a server that lacks a database serves")
	require.Contains(t, string(text), "DB index is out of range")
}

// Servers with these files are fit: doctor has nothing to say, and a lock can be taken.
func TestTheServersOfDeployAreFit(t *testing.T) {
	t.Parallel()
	urls := urlsOf(startAsDeployed(t, 3))
	nodes := "--nodes=" + strings.Join(urls, ",")
	code, _, errs := run(t, "enroll", "--only-new", nodes)
	require.Equal(t, 0, code, errs)
	code, out, _ := run(t, "doctor", nodes)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "✓ 3 of 3 nodes vote")
	require.NotRegexp(t, `(?m)^[!✗]`, out)
	for name, command := range talkers() {
		code, out, errs := run(t, with(command, nodes)...)
		require.Equal(t, 0, code, "%s: %s%s", name, out, errs)
	}
	health := regexp.MustCompile(`"CMD-SHELL", "([^"]+)"`).FindStringSubmatch(textOf(t, deploy+"compose.yaml"))
	require.NotNil(t, health)
	_, port, _ := strings.Cut(urls[0], "127.0.0.1:")
	checked, err := exec.Command("sh", "-c", strings.Replace(health[1], "redis-cli ", "redis-cli -p "+port+" ", 1)).CombinedOutput()
	require.NoError(t, err, "%s", checked)
	checked, err = exec.Command("sh", "-c", strings.Replace(health[1], "redis-cli ", "redis-cli -p 1 ", 1)).CombinedOutput()
	require.Error(t, err, "%s", checked)
	code, out, _ = run(t, "doctor", "--nodes="+regexp.MustCompile(`locker:[^@]*@`).ReplaceAllString(strings.Join(urls, ","), ""))
	require.Equal(t, 1, code)
	require.Contains(t, out, "NOAUTH", "nobody gets in without a password")
}

// As docs/operations.md says: no user of the file may change users, so a password is rotated by the file, with two restarts.
func TestThePasswordOfDeployIsRotatedInItsFile(t *testing.T) {
	t.Parallel()
	s := startAsDeployed(t, 1)[0]
	conn, err := s.dial()
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Do("ACL", "SETUSER", "locker", ">another")
	require.ErrorContains(t, err, "NOPERM")
	acl := filepath.Join(filepath.Dir(s.command[1]), "users.acl")
	before, both := s.url, textOf(t, acl)
	old := regexp.MustCompile(`>(\S+)`).FindStringSubmatch(both)[1]
	logsIn := func(url string) error {
		conn, err := (&deployed{url: url}).dial()
		if err == nil {
			conn.Close()
		}
		return err
	}
	after := strings.Replace(before, old, "another", 1)
	require.ErrorContains(t, logsIn(after), "WRONGPASS")

	both = strings.Replace(both, ">"+old, ">"+old+" >another", 1)
	require.NoError(t, os.WriteFile(acl, []byte(both), 0o600))
	s.kill()
	s.start(t)
	require.NoError(t, logsIn(before))
	require.NoError(t, logsIn(after))

	require.NoError(t, os.WriteFile(acl, []byte(strings.Replace(both, ">"+old+" ", "", 1)), 0o600))
	s.kill()
	s.url = after
	s.start(t)
	require.ErrorContains(t, logsIn(before), "WRONGPASS")
}

// The files and docs/operations.md say the same.
func TestTheFilesOfDeploySayWhatTheDocumentsSay(t *testing.T) {
	t.Parallel()
	operations := textOf(t, "../../docs/operations.md")
	user := regexp.MustCompile(`(?m)^user locker .*$`).FindString(operations)
	require.NotEmpty(t, user)
	require.Equal(t, "user default off ~* &* +@all\n"+user+"\n", textOf(t, deploy+"redis/users.acl"))

	conf := directives(textOf(t, deploy+"redis/redlock.conf"), " ")
	for name, value := range map[string]string{"maxmemory-policy": "noeviction", "maxmemory": "0", "cluster-enabled": "no", "appendonly": "no",
		"save": `""`, "aclfile": "/etc/redlock/users.acl"} {
		require.Equal(t, value, conf[name], name)
	}
	require.Contains(t, operations, "`maxmemory-policy noeviction`")
	durable := textOf(t, deploy+"redis/redlock.conf")
	for _, setting := range []string{"appendonly yes", "appendfsync always", "no-appendfsync-on-rewrite no"} {
		require.Contains(t, durable, "#   "+setting)
		name, value, _ := strings.Cut(setting, " ")
		require.Regexp(t, "`"+name+" "+value+"`|`"+name+"` at `"+value+"`", operations)
	}
	for _, file := range []string{"compose.yaml", "redis/redlock.conf", "redis/users.acl", "systemd/redlock-redis.service", "systemd/redlock-job@.service",
		"systemd/redlock-job@.timer"} {
		require.FileExists(t, deploy+file)
		require.Contains(t, operations, "deploy/"+file)
	}
}

func TestComposeReadsFiveMasters(t *testing.T) {
	t.Parallel()
	compose := []string{"docker-compose"}
	if _, err := exec.LookPath("docker-compose"); err != nil {
		if err := exec.Command("docker", "compose", "version").Run(); err != nil {
			required.Missing(t, "docker", fmt.Errorf("neither docker-compose nor docker compose: %w", err))
		}
		compose = []string{"docker", "compose"}
	}
	config := func(flags ...string) string {
		args := append(append(compose[1:], "--file", deploy+"compose.yaml", "config"), flags...)
		out, err := exec.Command(compose[0], args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	require.ElementsMatch(t, []string{"redis-1", "redis-2", "redis-3", "redis-4", "redis-5"}, strings.Fields(config("--services")))
	text := config()
	root, err := filepath.Abs(deploy)
	require.NoError(t, err)
	require.Equal(t, 5, strings.Count(text, "/etc/redlock/redlock.conf"))
	require.Equal(t, 5, strings.Count(text, filepath.Join(root, "redis")), "the directory with the files, in each")
	require.Equal(t, 5, strings.Count(text, "image: redis:7"))
	require.NotRegexp(t, "replicaof|cluster", text)
	for port := 7001; port <= 7005; port++ {
		require.Equal(t, 1, strings.Count(text, fmt.Sprint(port)), text)
	}
}

// verify parses units with systemd. The programs are those of this machine.
func verify(t *testing.T, dir, unit string) (output string, err error) {
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(dir, unit)).CombinedOutput()
	return string(out), err
}

func TestSystemdReadsTheUnits(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		required.Missing(t, "systemd", err)
	}
	server, err := fleet.Server()
	if err != nil {
		required.Missing(t, "redis", err)
	}
	dir := t.TempDir()
	for file, unit := range map[string]string{"redlock-redis.service": "redlock-redis.service", "redlock-job@.service": "redlock-job@report.service",
		"redlock-job@.timer": "redlock-job@report.timer"} {
		text := strings.ReplaceAll(textOf(t, deploy+"systemd/"+file), "/usr/local/bin/redlock", binary)
		text = strings.ReplaceAll(text, "/usr/bin/redis-server", server)
		require.NoError(t, os.WriteFile(filepath.Join(dir, unit), []byte(text), 0o600))
	}
	for _, unit := range []string{"redlock-redis.service", "redlock-job@report.service", "redlock-job@report.timer"} {
		out, err := verify(t, dir, unit)
		require.NoError(t, err, "%s: %s", unit, out)
		require.NotContains(t, out, filepath.Join(dir, unit), "a warning")
	}
	broken := strings.Replace(textOf(t, deploy+"systemd/redlock-job@.timer"), "*:0/5", "every now and then", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken@x.timer"), []byte(broken), 0o600))
	out, err := verify(t, dir, "broken@x.timer")
	require.True(t, err != nil || strings.Contains(out, "broken@x.timer"), "verify sees mistakes: %s", out)
}

// The job's command, as its unit has it, on two hosts: one runs it, and for the other systemd calls it a success.
func TestTheJobOfTheUnitRunsOnOneHost(t *testing.T) {
	t.Parallel()
	unit := directives(textOf(t, deploy+"systemd/redlock-job@.service"), "=")
	urls := urlsOf(startAsDeployed(t, 3))
	dir := t.TempDir() // %d, the directory with the credentials
	list := filepath.Join(dir, "nodes")
	require.NoError(t, os.WriteFile(list, []byte(strings.Join(urls, "\n")), 0o600))
	job := filepath.Join(dir, "report")
	require.NoError(t, os.WriteFile(job, []byte("#!/bin/sh\necho ran $REDLOCK_KEY\n"), 0o700))

	enroll := regexp.MustCompile(`redlock (enroll --only-new --max-ttl \S+)`).FindStringSubmatch(textOf(t, deploy+"systemd/redlock-job@.service"))
	require.NotNil(t, enroll)
	code, _, errs := run(t, append(strings.Fields(enroll[1]), "--nodes-file", list)...)
	require.Equal(t, 0, code, errs)

	command := strings.NewReplacer("/etc/redlock/jobs/%i", job, "%d", dir, "%i", "report").Replace(unit["ExecStart"])
	args := strings.Fields(command)
	require.Equal(t, "/usr/local/bin/redlock", args[0])
	code, out, errs := run(t, args[1:]...)
	require.Equal(t, 0, code, errs)
	require.Equal(t, "ran report\n", out)
	code, out, errs = run(t, args[1:]...) // the other host, a moment later
	require.Equal(t, unit["SuccessExitStatus"], fmt.Sprint(code), errs)
	require.Empty(t, out)
	require.Equal(t, "nodes:/etc/redlock/nodes", unit["LoadCredential"])
}
