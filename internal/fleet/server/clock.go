package server

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// clockShim is preloaded into a server to change its wall clock.
//
//go:embed clock/shim.c
var clockShim []byte

// ClockVariable is the environment variable of a server that names its [Clock].
const ClockVariable = "FLEET_CLOCK"

const compileTimeout = 30 * time.Second

var errNoCompiler = errors.New("there is no C compiler (cc, gcc or clang) on PATH to build it with; install one (Debian: apt-get install gcc libc6-dev)")

// FindCompiler finds the C compiler that BuildShim needs.
func FindCompiler() (string, error) {
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoCompiler
}

// BuildShim compiles the shim into dir and returns its path.
func BuildShim(ctx context.Context, dir string) (string, error) {
	compiler, err := FindCompiler()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockShim, 0o600); err != nil {
		return "", err
	}
	output, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", compiler, err, output)
	}
	return library, os.Chmod(library, 0o755) // the server in a container may run as any user
}

// A Clock is the path of the file with the clock offset of one server. "": its clock cannot be set.
type Clock string

// Set sets how far the clock is ahead of true time. Servers map the file into memory, so it is written in place.
func (c Clock) Set(offset time.Duration) error {
	file, err := os.OpenFile(string(c), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	var bytes [8]byte
	binary.NativeEndian.PutUint64(bytes[:], uint64(offset))
	_, err = file.WriteAt(bytes[:], 0) // one aligned word, so that no server reads half of it
	return errors.Join(err, file.Close())
}
