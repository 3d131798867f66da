//go:build unix

package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// commandsIn returns the commands that a help text lists.
func commandsIn(help string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+)  +[A-Z]`).FindAllStringSubmatch(help, -1) {
		names = append(names, m[1])
	}
	return names
}

// every returns each command that --help lists, at any depth.
func every(t *testing.T, above ...string) (commands [][]string) {
	code, out, errs := run(t, append(above, "--help")...)
	require.Equal(t, 0, code, errs)
	for _, name := range commandsIn(out) {
		command := append(append([]string{}, above...), name)
		commands = append(append(commands, command), every(t, command...)...)
	}
	return commands
}

func TestHelpExplainsEveryCommand(t *testing.T) {
	t.Parallel()
	commands := every(t)
	require.Contains(t, commands, []string{"chaos", "run"})
	require.Contains(t, commands, []string{"completion"})
	for _, command := range commands {
		_, long, _ := run(t, append(command, "--help")...)
		assert.Contains(t, long, "Examples:\n  ", command)
		assert.Contains(t, long, "redlock "+strings.Join(command, " "), command)
		code, help, _ := run(t, append([]string{"help"}, command...)...)
		assert.Equal(t, 0, code)
		assert.Equal(t, long, help, command)
		for line := range strings.Lines(long) {
			assert.LessOrEqual(t, len([]rune(line)), 121, "%v: %s", command, line)
		}
	}
	for _, line := range []string{"help nope", "help run nope", "completion", "completion tcsh", "completion bash zsh", "version now", "man", "man a b"} {
		code, out, errs := run(t, strings.Fields(line)...)
		assert.Equal(t, 64, code, line)
		assert.Empty(t, out, line)
		assert.Regexp(t, `^redlock: [^\n]+\n$`, errs, line)
	}
}

func TestACommandThatIsMisspeltIsNamedWithItsNeighbour(t *testing.T) {
	t.Parallel()
	for line, said := range map[string]string{
		"inspct x":  `there is no command "inspct" (did you mean inspect?); redlock --help lists them`,
		"foo":       `there is no command "foo"; redlock --help lists them`,
		"enrol":     `there is no command "enrol" (did you mean enroll?); redlock --help lists them`,
		"chaos rnu": `there is no command "rnu" (did you mean run?); redlock chaos --help lists them`,
		"xyzzy":     `there is no command "xyzzy"; redlock --help lists them`,
	} {
		code, out, errs := run(t, strings.Fields(line)...)
		assert.Equal(t, 64, code, line)
		assert.Empty(t, out, line)
		assert.Equal(t, "redlock: "+said+"\n", errs, line)
		for _, help := range []string{"--help " + line, line + " --help", line + " -h"} {
			code, out, errs := run(t, strings.Fields(help)...)
			assert.Equal(t, 64, code, help)
			assert.Empty(t, out, help)
			assert.Equal(t, "redlock: "+said+"\n", errs, help)
		}
	}
	_, want, _ := run(t, "chaos", "run", "--help")
	for _, line := range []string{"--help chaos run", "chaos --help run", "-h chaos run"} {
		code, out, errs := run(t, strings.Fields(line)...)
		assert.Equal(t, 0, code, errs)
		assert.Equal(t, want, out, line)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, out, _ := run(t, "version", "--json")
	require.Equal(t, 0, code)
	var v struct{ Version, Revision, Go, System string }
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.NotEmpty(t, v.Version)
	require.Equal(t, runtime.Version(), v.Go)
	require.Equal(t, runtime.GOOS+"/"+runtime.GOARCH, v.System)
	code, out, _ = run(t, "version")
	require.Equal(t, 0, code)
	require.Contains(t, out, "redlock "+v.Version+"\n")
	require.Contains(t, out, v.Go+" "+v.System+"\n")
}

// Built in a checkout, it names the revision. (The go command does not find it in a second worktree of one repository.)
func TestVersionNamesTheRevision(t *testing.T) {
	t.Parallel()
	git := func(args ...string) string {
		out, err := exec.Command("git", args...).CombinedOutput()
		if err != nil {
			t.Skipf("NOT TESTED: this is no checkout of git: %v %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if dir, common := git("rev-parse", "--absolute-git-dir"), git("rev-parse", "--path-format=absolute", "--git-common-dir"); dir != common {
		t.Skipf("NOT TESTED: this is a second worktree of %s", common)
	}
	built := filepath.Join(t.TempDir(), "redlock")
	out, err := exec.Command("go", "build", "-buildvcs=true", "-o", built, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(built, "version").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "revision "+git("rev-parse", "HEAD")+" (2")
}

// A real shell completes with the script.
func TestTheShellCompletesCommandsAndFlags(t *testing.T) {
	t.Parallel()
	const script = `
cd "$DIR" && touch file && PATH="$(dirname "$0"):$PATH"
_get_comp_words_by_ref() { # of the package bash-completion, which need not be here
  cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
}
compopt() { :; } # it is allowed only where bash itself completes
source <("$0" completion bash)
complete() { COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9; COMPREPLY=(); __start_redlock; echo "$*:" "${COMPREPLY[@]}"; }
complete redlock doc
complete redlock enroll --only
complete redlock completion z
complete redlock help chaos mat
complete redlock inspect f
complete redlock inspect --al
complete redlock run --ev
complete redlock doctor --own
`
	code, out, errs := shell(t, script, []string{"DIR=" + t.TempDir()})
	require.Equal(t, 0, code, errs)
	require.Empty(t, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 8, out)
	for i, want := range []string{"redlock doc: doctor", "redlock enroll --only: --only-new", "redlock completion z: zsh",
		"redlock help chaos mat: matrix", "redlock inspect f:", "redlock inspect --al: --all", "redlock run --ev: --every", "redlock doctor --own: --owner"} {
		require.Equal(t, want, strings.Join(strings.Fields(lines[i]), " "))
	}
	for _, name := range []string{"zsh", "fish", "powershell"} {
		code, out, errs := run(t, "completion", name)
		require.Equal(t, 0, code, errs)
		require.Contains(t, out, "redlock")
		if path, err := exec.LookPath(name); err == nil && name != "powershell" {
			file := filepath.Join(t.TempDir(), name)
			require.NoError(t, os.WriteFile(file, []byte(out), 0o600))
			text, err := exec.Command(path, "-n", file).CombinedOutput() // only checks the syntax
			require.NoError(t, err, "%s", text)
		}
	}
}

// Each command has a page, with its flags, and groff has nothing to complain about.
func TestTheManualHasAPageForEveryCommand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "man1")
	code, out, errs := run(t, "man", dir)
	require.Equal(t, 0, code, errs)
	require.Empty(t, out)
	groff, noGroff := exec.LookPath("groff")
	for _, command := range append(every(t), nil) {
		if len(command) == 1 && command[0] == "help" {
			continue
		}
		name := strings.Join(append([]string{"redlock"}, command...), "-")
		text, err := os.ReadFile(filepath.Join(dir, name+".1"))
		require.NoError(t, err)
		require.Contains(t, string(text), ".SH SYNOPSIS", name)
		if noGroff != nil {
			continue
		}
		typeset := exec.Command(groff, "-man", "-Tutf8", "-ww", "-P-cbou", filepath.Join(dir, name+".1"))
		page, err := typeset.CombinedOutput()
		require.NoError(t, err, "%s", page)
		require.NotContains(t, string(page), "warning", name)
		require.NotContains(t, string(page), ".SH", name)
		_, help, _ := run(t, append(command, "--help")...)
		plain := strings.Join(strings.Fields(string(page)), " ")
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-h, )?(--[a-z-]+)`).FindAllStringSubmatch(help, -1) {
			require.Contains(t, plain, flag[1], name)
		}
		long, _, _ := strings.Cut(help, "\n\n")
		require.Contains(t, plain, strings.Join(strings.Fields(strings.ReplaceAll(long, "  - ", "• ")), " "), name)
	}
	if noGroff != nil {
		t.Logf("NOT TESTED: that groff typesets the pages: %v", noGroff)
	}
	code, _, errs = run(t, "man", "/dev/null/x")
	require.Equal(t, 1, code)
	require.Regexp(t, `^redlock: [^\n]+\n$`, errs)
}
