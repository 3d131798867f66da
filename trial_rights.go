package redlock

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// A server that refuses a command in a script says which one, or only in which line.

// The patterns are compiled when a trial needs them, and not in every program that imports this package.
var (
	refusedByName = sync.OnceValue(func() *regexp.Regexp { // Redis 7.2 and later, Valkey, Redict
		return regexp.MustCompile(`in script: User .* has no permissions to run the '([^']+)' command`)
	})
	refusedLine = sync.OnceValue(func() *regexp.Regexp { // Redis 7.0
		return regexp.MustCompile(`can't run this command.*script: ([0-9a-f]{40}), on @user_script:(\d+)`)
	})
	refusedAt = sync.OnceValue(func() *regexp.Regexp { // Redis 6
		return regexp.MustCompile(`call to f_([0-9a-f]{40})\): @user_script:(\d+): .*can't run this command`)
	})
	commandInLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`) })
)

// withRight adds to a server's refusal which right is missing, if it does not say so itself.
func (p *protocol) withRight(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if named := refusedByName().FindStringSubmatch(text); named != nil {
		return fmt.Errorf("its user lacks the right +%s: %w", named[1], err)
	}
	at := refusedLine().FindStringSubmatch(text)
	if at == nil {
		at = refusedAt().FindStringSubmatch(text)
	}
	if at == nil {
		return err
	}
	for _, s := range p.scripts() {
		number, _ := strconv.Atoi(at[2])
		lines := strings.Split(s.source, "\n")
		if s.sha != any(at[1]) || number < 1 || number > len(lines) {
			continue
		}
		var rights []string
		for _, command := range commandInLine().FindAllStringSubmatch(lines[number-1], -1) {
			rights = append(rights, "+"+strings.ToLower(command[1]))
		}
		if len(rights) > 0 {
			return fmt.Errorf("its user lacks the right %s: %w", strings.Join(rights, " or "), err)
		}
	}
	return err
}
