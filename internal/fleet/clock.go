package fleet

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// clockShim is preloaded into a server to change its wall clock.
//
//go:embed clock/shim.c
var clockShim []byte

const (
	clockVariable  = "FLEET_CLOCK" // names the file with the offset
	compileTimeout = 30 * time.Second
)

var errNoCompiler = errors.New("there is no C compiler (cc, gcc or clang) on PATH to build it with; install one (Debian: apt-get install gcc libc6-dev)")

// ClocksAvailable returns nil if a fleet of the kind can have [Options.Clocks], or an error that says what is missing.
func ClocksAvailable(kind Kind) error {
	if kind == Embedded {
		return errors.New("embedded nodes share the clock of this process; use a process or docker fleet")
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("changing the clock of a server needs a preloaded library, which works on Linux only, not on %s", runtime.GOOS)
	}
	_, err := findCompiler()
	return err
}

func findCompiler() (string, error) {
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoCompiler
}

// buildShim compiles the shim into dir and returns its path.
func buildShim(ctx context.Context, dir string) (string, error) {
	compiler, err := findCompiler()
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

// A clockFile contains the clock offset of one node. Servers map it into memory, so it is written in place.
type clockFile string

func (c clockFile) set(offset time.Duration) error {
	file, err := os.OpenFile(string(c), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	var bytes [8]byte
	binary.NativeEndian.PutUint64(bytes[:], uint64(offset))
	_, err = file.WriteAt(bytes[:], 0) // one aligned word, so that no server reads half of it
	return errors.Join(err, file.Close())
}

// SetClock sets how far the server's wall clock is ahead of true time. It lasts over restarts, until it is set again.
// It needs Options.Clocks.
func (n *Node) SetClock(ahead time.Duration) error {
	return n.do(fmt.Sprintf("clock %+v", ahead), func() error {
		if n.backend.clock() == "" {
			return n.fleet.unsupported("clock", "start a process or docker fleet with Options.Clocks")
		}
		return n.backend.clock().set(ahead)
	})
}

// PeerAddress returns the host and port by which other nodes of the fleet reach this one, for example for REPLICAOF. In
// a docker fleet they change when the node is restarted.
func (n *Node) PeerAddress() (host, port string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.backend.alive() {
		return "", "", fmt.Errorf("%s: %w", n.name, errDown)
	}
	host, port = n.backend.peerAddress()
	return host, port, nil
}
