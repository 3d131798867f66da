package redlock

import (
	"crypto/sha1" // #nosec: the name Redis gives a script, not a secret
	_ "embed"
	"encoding/hex"
	"strings"
)

// A script is one transition on one node, run there atomically.
type script struct {
	name   string
	source string
	sha    any // boxed once, for redigo
	// cleansUp: what it deletes may stay behind if it is not sent, so it is owed until it is answered.
	cleansUp bool
	grants   bool // it makes a lease, or a voter: not sent to a server that is unfit
	own      ownArgs
}

var (
	//go:embed scripts/acquire.lua
	acquireSource string
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
	//go:embed scripts/inspect.lua
	inspectSource string
)

func newScript(name, source string) *script {
	source = withoutComments(source)
	sum := sha1.Sum([]byte(source))
	return &script{name: name, source: source, sha: hex.EncodeToString(sum[:])}
}

// withoutComments halves what is sent to every server at every connection. Lines keep their numbers, which a
// server's error names.
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

// load is the command that makes the script known to a server. One that would not load shows in the votes.
func (s *script) load() *command {
	return &command{name: "SCRIPT", args: []any{"LOAD", s.source}, done: func(*node, request, any, error) {}}
}
