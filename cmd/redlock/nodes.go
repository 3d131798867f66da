package main

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

const (
	nodesEnv     = "REDLOCK_NODES"
	nodesFileEnv = "REDLOCK_NODES_FILE"
	tokenEnv     = "REDLOCK_TOKEN" // redlock run gives it to its command
)

// embeddedNodes, given instead of URLs, asks for nodes in this process.
const embeddedNodes = "embedded"

// maxNodesFile bounds how much of a --nodes-file is read. 64 nodes need much less.
const maxNodesFile = 1 << 20

// nodeList returns the list of nodes as the user wrote it, and where it was found.
func (f *clientFlags) nodeList(stdin io.Reader) (list, source string, err error) {
	file, by := f.nodesFile, "--nodes-file"
	switch {
	case f.nodes != "" && file != "":
		return "", "", usage("--nodes and --nodes-file exclude each other; give one of them")
	case f.nodes != "":
		return f.nodes, "--nodes", nil
	case file == "":
		list, file, by = os.Getenv(nodesEnv), os.Getenv(nodesFileEnv), nodesFileEnv
		if list != "" && file != "" {
			return "", "", usage("%s and %s exclude each other; unset one of them", nodesEnv, nodesFileEnv)
		}
	}
	switch file {
	case "":
		return list, nodesEnv, nil
	case "-":
		f.readStdin = true
		list, err = readNodes(stdin)
	default:
		var opened *os.File
		if opened, err = openSecret(file); err == nil {
			list, err = readNodes(opened)
			if !f.json && err == nil && othersMayRead(opened) && hasPassword(list) {
				say(os.Stderr, "%s: %s has passwords, and other users of this host may read it; chmod 600 %[2]s", by, file)
			}
			opened.Close()
		}
	}
	if err != nil {
		return "", "", usage("%s: %w", by, err)
	}
	return list, by, nil
}

// readNodes reads URLs that are separated by commas or line ends. A line that begins with # is a comment.
func readNodes(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxNodesFile))
	if err != nil {
		return "", err
	}
	var nodes []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			nodes = append(nodes, line)
		}
	}
	if len(nodes) == 0 {
		return "", errors.New("it names no node; write one URL per line")
	}
	return strings.Join(nodes, ","), nil
}

// openNodes returns the nodes that the user asked for, and a function that stops the nodes it started.
func (f *clientFlags) openNodes(ctx context.Context) ([]redlock.Node, func(), error) {
	list, source, err := f.nodeList(os.Stdin)
	if err != nil {
		return nil, nil, err
	}
	switch list {
	case "":
		if os.Getenv(tokenEnv) != "" {
			return nil, nil, usage("no nodes: this runs under redlock run, which takes %s out of the environment of its command; "+
				"give that redlock run --pass-nodes, or this command --nodes-file FILE", nodesEnv)
		}
		return nil, nil, usage("no nodes: give --nodes url,url,url or --nodes-file FILE, or set %s", nodesEnv)
	case embeddedNodes:
		f.embedded = true
		started, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{})
		if err != nil {
			return nil, nil, &exitError{exitFailed, err}
		}
		return redlock.Nodes(started.URLs()...), func() { _ = started.Close() }, nil
	}
	var urls []string
	for _, u := range strings.Split(list, ",") {
		if u = strings.TrimSpace(u); u == "" {
			continue
		}
		if !readable(u) {
			return nil, nil, usage("%s: Nodes[%d] (the first is Nodes[0]): not a URL; write redis://user:password@host:port, "+
				"and escape the characters /?#%%@: and the comma in a password: %%2F and so on", source, len(urls))
		}
		urls = append(urls, u)
	}
	nodes := redlock.Nodes(urls...)
	if err := f.apply(nodes); err != nil {
		return nil, nil, err
	}
	return nodes, func() {}, nil
}

// readable refuses URLs whose error message from the library would show a part of the password. If a password has an
// unescaped / or #, a part of it is where the port or the database should be.
func readable(raw string) bool {
	if !strings.Contains(raw, "://") {
		raw = "redis://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	return !strings.Contains(u.Path+u.RawQuery+u.Fragment+u.Opaque+u.Scheme, "@")
}

// othersMayRead reports whether the file is one that every user of this host may read. Windows does not say.
func othersMayRead(file *os.File) bool {
	about, err := file.Stat()
	return err == nil && runtime.GOOS != "windows" && about.Mode().IsRegular() && about.Mode().Perm()&0o004 != 0
}

// hasPassword reports whether one of the URLs has a login.
func hasPassword(list string) bool { return strings.Contains(list, "@") }
