package dockerfleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/internal/fleet"
)

// ruleTimeout bounds one change of the rules, which normally takes milliseconds.
const ruleTimeout = 10 * time.Second

// packetRules drop packets in a container's network namespace.
type packetRules struct {
	nsenter, iptables string
	failed            atomic.Bool // they do not work here, so the link is used
}

// rulesFor has the rules of each mode. They do not affect loopback, which is inside the node.
var rulesFor = map[fleet.CutMode][][]string{
	fleet.Flowing: nil,
	fleet.CutBoth: {
		{"INPUT", "!", "-i", "lo", "-j", "DROP"},
		{"OUTPUT", "!", "-o", "lo", "-j", "DROP"},
	},
	// Replies have PSH set. Pure acknowledgements do not have it, and must pass so that requests can arrive.
	fleet.CutReplies: {
		{"OUTPUT", "-p", "tcp", "--sport", redisPort.Port(), "--tcp-flags", "PSH", "PSH", "-j", "DROP"},
	},
}

// findPacketRules returns an error if packet rules cannot work: the engine and its containers must be on this machine.
func findPacketRules(endpoint string) (*packetRules, error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return nil, errors.New("they need Linux and root")
	}
	if !strings.HasPrefix(endpoint, "unix://") {
		return nil, fmt.Errorf("the engine is at %s, not on this machine", endpoint)
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return nil, err
	}
	iptables, err := exec.LookPath("iptables")
	if err != nil {
		return nil, err
	}
	return &packetRules{nsenter: nsenter, iptables: iptables}, nil
}

// check makes sure that pid is the process of the container, and that its rules can be listed. If this process is in a
// container itself, the same pid may be another process here, whose namespace must not be changed.
func (r *packetRules) check(ctx context.Context, pid int, ip string) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	its, err := os.Readlink(filepath.Join(dir, "ns/net"))
	if err != nil {
		return err
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	routes, err := os.ReadFile(filepath.Join(dir, "net/fib_trie"))
	if err != nil {
		return err
	}
	if its == ours || ip == "" || !strings.Contains(string(routes), "|-- "+ip+"\n") {
		return fmt.Errorf("process %d is not the process of the container here", pid)
	}
	return r.run(ctx, pid, "-S", []string{"INPUT"})
}

// checkRules finds out whether packet rules, and the unix socket that bypasses them, work for a container that has
// started. If they do not work at its first start, the fleet does not use them. A later error, or the end of ctx,
// proves nothing, and other nodes may have active rules that must be healed. So then the start fails.
func (c *container) checkRules(ctx context.Context, ip string) error {
	if c.Cutter() == nil {
		return nil
	}
	err := c.launcher.rules.check(ctx, c.pid, ip)
	if err == nil {
		err = c.Direct().Ping(ctx) // an engine with another /tmp does not share the socket
	}
	if err == nil || c.started || ctx.Err() != nil {
		return err
	}
	c.launcher.logf("%s: no packet rules for this fleet: %v", c.name, err)
	c.launcher.rules.failed.Store(true)
	return nil
}

func (c *container) Cutter() fleet.Cutter {
	if c.launcher.rules == nil || c.launcher.rules.failed.Load() {
		return nil
	}
	return c
}

func (c *container) Cut(mode fleet.CutMode) error {
	ctx, cancel := context.WithTimeout(context.Background(), ruleTimeout)
	defer cancel()
	rules, err := c.launcher.rules.replace(ctx, c.pid, c.rules, rulesFor[mode])
	c.rules = rules
	return err
}

// replace adds the new rules before it deletes the old ones, so that there is no gap. It returns the active rules.
func (r *packetRules) replace(ctx context.Context, pid int, old, rules [][]string) ([][]string, error) {
	var inForce [][]string
	for _, rule := range rules {
		if err := r.run(ctx, pid, "-A", rule); err != nil {
			return append(inForce, old...), err
		}
		inForce = append(inForce, rule)
	}
	for i, rule := range old {
		if err := r.run(ctx, pid, "-D", rule); err != nil {
			return append(inForce, old[i:]...), err
		}
	}
	return inForce, nil
}

func (r *packetRules) run(ctx context.Context, pid int, how string, rule []string) error {
	args := append([]string{"-t", strconv.Itoa(pid), "-n", "--", r.iptables, "-w", "5", how}, rule...)
	output, err := exec.CommandContext(ctx, r.nsenter, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("nsenter %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
