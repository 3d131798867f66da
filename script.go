package redlock

import (
	"crypto/sha1" // #nosec: the name Redis gives a script, not a secret
	_ "embed"
	"encoding/hex"
)

// A script is one transition on one node, run there atomically.
type script struct {
	name   string
	source string
	sha    any // boxed once, for redigo
	// cleansUp: what it deletes may stay behind if it is not sent, so it is owed until it is answered.
	cleansUp bool
}

var (
	//go:embed scripts/acquire.lua
	acquireSource string
	//go:embed scripts/extend.lua
	extendSource string
	//go:embed scripts/plant.lua
	plantSource string
	//go:embed scripts/release.lua
	releaseSource string

	acquireScript = newScript("acquire", acquireSource)
	extendScript  = newScript("extend", extendSource)
	plantScript   = newScript("plant", plantSource)
	releaseScript = newScript("release", releaseSource)

	scripts = []*script{acquireScript, extendScript, plantScript, releaseScript}
)

func init() { releaseScript.cleansUp = true }

func newScript(name, source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{name: name, source: source, sha: hex.EncodeToString(sum[:])}
}
