package consumer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

const (
	library = "github.com/quorumlock/redlock"
	version = "v0.99.0" // of every module in the proxy

	// Before the first release a commit has a version like this one. The adapters then require the version below all of
	// these: importers do not see the replace in their go.mod, and Go takes the newer one of the two.
	ofCommit      = "v0.0.0-20261201000000-0123456789ab"
	beforeRelease = "v0.0.0-00010101000000-000000000000"
)

// root is the repository.
func root(t *testing.T) string {
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	return dir
}

// adapters are the directories of the modules that are released beside the library.
func adapters(t *testing.T) (dirs []string) {
	mods, err := filepath.Glob(filepath.Join(root(t), "adapters", "*", "go.mod"))
	require.NoError(t, err)
	require.NotEmpty(t, mods)
	for _, mod := range mods {
		dirs = append(dirs, "adapters/"+filepath.Base(filepath.Dir(mod)))
	}
	return dirs
}

// run runs a program and returns its output.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s %s\n%s%s", program, strings.Join(args, " "), &stdout, &stderr)
	return stdout.String()
}

// copyTree copies the files of the working tree that git would commit, and so nothing that only this machine has.
func copyTree(t *testing.T) string {
	from, to := root(t), t.TempDir()
	if err := exec.CommandContext(t.Context(), "git", "-C", from, "rev-parse").Run(); err != nil {
		t.Skipf("NOT TESTED: this is no clone: %v", err)
	}
	list := run(t, from, nil, "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	for _, name := range strings.FieldsFunc(list, func(r rune) bool { return r == 0 }) {
		content, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) { // deleted, and not committed
			continue
		}
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join(from, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(to, name), content, info.Mode().Perm()))
	}
	return to
}

// publish puts the module in a directory of the tree into the proxy, as its tag would.
func publish(t *testing.T, proxy, tree, dir, version string) {
	v := module.Version{Path: strings.TrimSuffix(library+"/"+dir, "/"), Version: version}
	at := filepath.Join(proxy, v.Path, "@v")
	require.NoError(t, os.MkdirAll(at, 0o755))
	mod, err := os.ReadFile(filepath.Join(tree, dir, "go.mod"))
	require.NoError(t, err)
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
	require.NoError(t, err)
	var zip bytes.Buffer
	require.NoError(t, modzip.CreateFromDir(&zip, v, filepath.Join(tree, dir)))
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info,
		version + ".mod": mod, version + ".zip": zip.Bytes()} {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), content, 0o600))
	}
}

// outsideEnv is the environment of a module outside, which gets what there is no other way to get from the proxy.
func outsideEnv(t *testing.T, proxy string) []string {
	cache := strings.TrimSpace(run(t, ".", nil, "go", "env", "GOMODCACHE"))
	upstream := strings.TrimSpace(run(t, ".", nil, "go", "env", "GOPROXY"))
	return []string{
		// What this machine has in its cache need not be downloaded again.
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cache, "cache", "download") + "," + upstream,
		"GOMODCACHE=" + filepath.Join(t.TempDir(), "mod"), // where the version of an earlier run is not
		"GOSUMDB=off", "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath",
	}
}

// ofDocker are the modules of Docker. An importer builds nothing of them and, after go mod tidy, has none in its go.sum,
// where go mod tidy writes what the tests of the packages that it imports need. So those start no containers.
var ofDocker = regexp.MustCompile(`(?im)^\S*(docker|moby|opencontainers|containerd)\S*`)

// A module outside of this repository imports the library and every adapter, as released, and its tests pass.
func TestAModuleOutsideGetsEverythingFromAProxy(t *testing.T) {
	tree, proxy, outside := copyTree(t), t.TempDir(), t.TempDir()
	run(t, tree, nil, filepath.Join(tree, ".ci/release.sh"), "set", version)
	publish(t, proxy, tree, "", version)
	for _, dir := range adapters(t) {
		publish(t, proxy, tree, dir, version)
	}

	env := outsideEnv(t, proxy)
	text, err := os.ReadFile("testdata/outside/outside_test.go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(outside, "outside_test.go"), text, 0o600))
	get := []string{"get", library + "@" + version}
	for _, dir := range adapters(t) {
		get = append(get, library+"/"+dir+"@"+version)
		require.Contains(t, string(text), library+"/"+dir, "the module outside does not use it")
	}
	run(t, outside, env, "go", "mod", "init", "example.org/outside")
	run(t, outside, env, "go", get...)
	run(t, outside, env, "go", "mod", "tidy")
	run(t, outside, env, "go", "vet", "./...")
	t.Log(run(t, outside, env, "go", "test", "-count=1", "./..."))

	sums, err := os.ReadFile(filepath.Join(outside, "go.sum"))
	require.NoError(t, err)
	require.Contains(t, string(sums), library+" "+version+" h1:")
	require.Empty(t, ofDocker.FindAllString(string(sums), -1), "go.sum of a module that uses all of it")
	built := run(t, outside, env, "go", "list", "-deps", "-test", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	require.Contains(t, built, library)
	require.Empty(t, ofDocker.FindAllString(built, -1), "what is built")
	t.Logf("go.sum of a module that uses all of it: %d lines", bytes.Count(sums, []byte("\n")))

	alone := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(alone, "main.go"), []byte("package main\n\nimport _ \""+library+"\"\n\nfunc main() {}\n"), 0o600))
	run(t, alone, env, "go", "mod", "init", "example.org/alone")
	run(t, alone, env, "go", "get", library+"@"+version)
	run(t, alone, env, "go", "mod", "tidy")
	linked := run(t, alone, env, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	got := strings.Fields(linked)
	slices.Sort(got)
	require.Equal(t, []string{"example.org/alone", "github.com/gomodule/redigo", "github.com/hashicorp/errwrap",
		"github.com/hashicorp/go-multierror", library, "golang.org/x/sys"}, slices.Compact(got), "what the library links")
	sums, err = os.ReadFile(filepath.Join(alone, "go.sum"))
	require.NoError(t, err)
	require.Empty(t, ofDocker.FindAllString(string(sums), -1), "go.sum of a module that uses the library alone")
	t.Logf("go.sum of a module that uses the library alone: %d lines", bytes.Count(sums, []byte("\n")))
}

// Before the first release, a module outside gets an adapter together with the library, and Go takes the newest commit of
// both. With a require of v0.0.0 it would look for that version, because it sorts above all commits.
func TestAModuleOutsideGetsTheAdaptersOfACommitBeforeTheFirstRelease(t *testing.T) {
	tree, proxy, outside := copyTree(t), t.TempDir(), t.TempDir()
	for _, dir := range adapters(t) {
		required := strings.TrimSpace(run(t, filepath.Join(tree, dir), nil, "go", "list", "-m", "-f", "{{.Version}}", library))
		if !strings.HasPrefix(required, "v0.0.0") {
			t.Skipf("%s requires the release %s", dir, required)
		}
		require.Equal(t, beforeRelease, required, dir)
		publish(t, proxy, tree, dir, ofCommit)
	}
	publish(t, proxy, tree, "", ofCommit)

	env, imports := outsideEnv(t, proxy), ""
	get := []string{"get", library + "@" + ofCommit}
	for _, dir := range adapters(t) {
		get = append(get, library+"/"+dir+"@"+ofCommit)
		imports += "import _ \"" + library + "/" + dir + "\"\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(outside, "main.go"), []byte("package main\n\n"+imports+"\nfunc main() {}\n"), 0o600))
	run(t, outside, env, "go", "mod", "init", "example.org/outside")
	run(t, outside, env, "go", get...)
	run(t, outside, env, "go", "mod", "tidy")
	run(t, outside, env, "go", "vet", ".")
	require.Equal(t, ofCommit, strings.TrimSpace(run(t, outside, env, "go", "list", "-m", "-f", "{{.Version}}", library)))
}

// A release is one commit with a tag for each module, and what importers read of it names that version.
func TestAReleaseTagsEveryModule(t *testing.T) {
	tree := copyTree(t)
	git := func(args ...string) string {
		return run(t, tree, nil, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"}, args...)...)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "all")
	release := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(tree, ".ci/release.sh"), args...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, wrong := range [][]string{{}, {"tags"}, {"tags", "1.2.3"}, {"tags", "v2.0.0"}, {"what", "v0.2.0"}} {
		_, err := release(wrong...)
		require.Error(t, err, "%v", wrong)
	}
	out, err := release("tags", "v0.98.0")
	require.Error(t, err)
	require.Contains(t, out, "run: ", "the adapters require another version")

	_, err = release("set", "v0.98.0")
	require.NoError(t, err)
	out, err = release("tags", "v0.98.0")
	require.Error(t, err)
	require.Contains(t, out, "CHANGELOG.md")
	changes, err := os.ReadFile(filepath.Join(tree, "CHANGELOG.md"))
	require.NoError(t, err)
	changes = bytes.Replace(changes, []byte("# Changelog\n"), []byte("# Changelog\n\n## 0.98.0 - 2026-12-01\n\nSomething new.\n\n## 0.98.00\n\nno\n"), 1)
	require.NoError(t, os.WriteFile(filepath.Join(tree, "CHANGELOG.md"), changes, 0o600))
	out, err = release("tags", "v0.98.0")
	require.Error(t, err)
	require.Contains(t, out, "not committed")
	git("commit", "-qam", "v0.98.0")
	out, err = release("tags", "v0.98.0")
	require.NoError(t, err, out)

	want := []string{"v0.98.0"}
	for _, dir := range adapters(t) {
		want = append(want, dir+"/v0.98.0")
	}
	slices.Sort(want)
	require.Equal(t, want, strings.Fields(git("tag", "--points-at", "HEAD")))
	for _, name := range want {
		require.Contains(t, out, name, "how to push it")
	}
	out, err = release("notes", "v0.98.0")
	require.NoError(t, err)
	require.Equal(t, "Something new.", strings.TrimSpace(out))
}

// What decides a change here decides it in CI too.
func TestTheWorkflowsRunWhatDecidesAChange(t *testing.T) {
	for _, workflow := range []string{"ci", "release"} {
		text, err := os.ReadFile(filepath.Join(root(t), ".github", "workflows", workflow+".yml"))
		require.NoError(t, err)
		require.Regexp(t, `(?m)^      - run: sudo .* \.ci/run$`, string(text))
	}
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root(t), ".github", "workflows", "ci.yml"))
	require.NoError(t, err)
	targets := regexp.MustCompile(`run: make (\w+)`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, targets, 4)
	for _, target := range targets {
		require.Contains(t, string(makefile), fmt.Sprintf("\n%s:", target[1]))
	}
}
