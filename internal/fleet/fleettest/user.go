package fleettest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/required"
)

// SetUser gives a user of the server these rules (ACL SETUSER). Before Redis 6.2 a user may use all channels, and no rule
// can grant them: such rules are left out there. A test that needs a rule that the server does not know is skipped with
// the reason.
func SetUser(t testing.TB, n *fleet.Node, user string, rules ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := n.DialDirect(ctx, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	SetUserBy(t, conn, user, rules...)
}

// SetUserBy is SetUser on a connection to the server.
func SetUserBy(t testing.TB, conn redis.Conn, user string, rules ...string) {
	t.Helper()
	_, err := conn.Do("ACL", redis.Args{"SETUSER", user}.AddFlat(rules)...)
	if isUnknownRule(err) {
		_, err = conn.Do("ACL", redis.Args{"SETUSER", user}.AddFlat(withoutChannels(rules))...)
	}
	if isUnknownRule(err) {
		required.Missing(t, "redis-7.0", fmt.Errorf("this server's ACLs lack a rule that Redis 7.0 has: %w", err))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isUnknownRule tells a rule of a later version from a mistake: all rules of the tests are right in Redis 7.0.
func isUnknownRule(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Error in ACL SETUSER modifier")
}

// withoutChannels leaves out what grants channels. To forbid them cannot be left out.
func withoutChannels(rules []string) (rest []string) {
	for _, rule := range rules {
		if !strings.HasPrefix(rule, "&") && rule != "allchannels" {
			rest = append(rest, rule)
		}
	}
	return rest
}
