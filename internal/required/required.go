// Package required says what a test does if this machine lacks something that it needs.
package required

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Missing skips the test, with the reason. It fails instead if the environment variable REDLOCK_REQUIRE, a
// comma-separated list, has the name of what is missing. In CI it has all names.
func Missing(t testing.TB, name string, why error) {
	t.Helper()
	names := strings.FieldsFunc(os.Getenv("REDLOCK_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' })
	if slices.Contains(names, name) {
		t.Fatalf("REDLOCK_REQUIRE has %q, but: %v", name, why)
	}
	t.Skipf("NOT TESTED: %v. (REDLOCK_REQUIRE=%s makes this a failure.)", why, name)
}

// Chromium returns a browser's program. Without one it is Missing.
func Chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Missing(t, "chromium", errors.New("no browser for the page; install chromium"))
	return ""
}

// Python returns the program of Python 3. Without one it is Missing.
func Python(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		Missing(t, "python", errors.New("no python3 on PATH for the lock in Python; install python3"))
	}
	return path
}
