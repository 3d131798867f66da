package redlock

import (
	"crypto/sha1" // #nosec: the name Redis gives a script, not a secret
	_ "embed"
	"encoding/hex"
	"strings"
)

// A script is one Lua script of scripts/. A server runs it atomically.
type script struct {
	name   string
	source string
	sha    any // by which EVALSHA names it; a command argument
	// cleansUp: it deletes what would otherwise stay behind, so it is owed until a server has answered it (L3).
	cleansUp bool
	counts   bool    // its reply is how many keys it wrote or deleted, and not a TIME
	takes    bool    // a grant of it takes keys, so it counts only if an INFO has vouched for it in time (Q1)
	grants   bool    // it may make a lease or a voter, so it is not sent to an unfit server (N2)
	own      ownArgs // the arguments that differ from node to node
}

var (
	//go:embed scripts/acquire.lua
	acquireSource string
	//go:embed scripts/fair.lua
	fairSource string
	//go:embed scripts/ready.lua
	readySource string
	//go:embed scripts/extend.lua
	extendSource string
	//go:embed scripts/plant.lua
	plantSource string
	//go:embed scripts/release.lua
	releaseSource string
	//go:embed scripts/leave.lua
	leaveSource string
	//go:embed scripts/vouch.lua
	vouchSource string
	//go:embed scripts/swap.lua
	swapSource string
	//go:embed scripts/adopt.lua
	adoptSource string
	//go:embed scripts/inspect.lua
	inspectSource string
	//go:embed scripts/share.lua
	shareSource string
	//go:embed scripts/unshare.lua
	unshareSource string
	// commonSource is the functions that stand in front of most scripts, and of entriesSource.
	//go:embed scripts/common.lua
	commonSource string
	// entriesSource is the functions that stand in front of the scripts for locks that several may share.
	//go:embed scripts/entries.lua
	entriesSource string
)

func newScript(name, source string) *script {
	source = withoutComments(source)
	sum := sha1.Sum([]byte(source))
	return &script{name: name, source: source, sha: hex.EncodeToString(sum[:])}
}

// withoutComments halves what every new connection sends. Lines keep their numbers, because a server's errors name
// them.
func withoutComments(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if strings.HasPrefix(strings.TrimSpace(line), "--") {
			line = "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}
