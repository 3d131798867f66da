package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode"

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

// A nodeText is a node as the user wrote it, and where.
type nodeText struct {
	url string
	at  string // "the 2nd of the URLs", or "line 3 of /etc/redlock/nodes"
}

// nodeList returns the nodes as the user wrote them, and what has them: a flag or a variable.
func (f *clientFlags) nodeList(stdin io.Reader) (list []nodeText, by string, err error) {
	text, file := f.nodes, f.nodesFile
	switch by = "--nodes-file"; {
	// A variable of the caller's may be empty: the nodes of the environment are not what it meant.
	case text == "" && f.given("nodes"):
		return nil, "", usage("--nodes is empty; give the URLs of the nodes, or leave it out to use %s", nodesEnv)
	case file == "" && f.given("nodes-file"):
		return nil, "", usage("--nodes-file is empty; give the name of a file, or leave it out to use %s", nodesFileEnv)
	case text != "" && file != "":
		return nil, "", usage("--nodes and --nodes-file exclude each other; give one of them")
	case text != "":
		return splitNodes(text), "--nodes", nil
	case file == "":
		text, file, by = os.Getenv(nodesEnv), os.Getenv(nodesFileEnv), nodesFileEnv
		if text != "" && file != "" {
			return nil, "", usage("%s and %s exclude each other; unset one of them", nodesEnv, nodesFileEnv)
		}
	}
	switch file {
	case "":
		return splitNodes(text), nodesEnv, nil
	case "-":
		f.readStdin = true
		list, err = readNodes(stdin, "standard input")
	default:
		list, err = f.readNodesFile(file, by)
	}
	if err != nil {
		return nil, "", usage("%s: %w", by, err)
	}
	return list, by, nil
}

// stdinFor is the flag or the variable that makes redlock read the nodes from standard input; "": none does.
func (f *clientFlags) stdinFor() string {
	switch {
	case f.nodesFile == "-":
		return "--nodes-file"
	case f.nodes == "" && f.nodesFile == "" && os.Getenv(nodesFileEnv) == "-":
		return nodesFileEnv
	}
	return ""
}

func (f *clientFlags) readNodesFile(path, by string) ([]nodeText, error) {
	f.hide(path)
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	list, err := readNodes(file, path)
	if !f.json && err == nil && othersMayRead(file) && hasPassword(list) {
		say(os.Stderr, "%s: %s has passwords, and other users of this host may read it; %s", by, path, howToHide(path))
	}
	return list, err
}

// splitNodes reads URLs that are separated by commas.
func splitNodes(text string) (list []nodeText) {
	for u := range strings.SplitSeq(text, ",") {
		if u = strings.TrimSpace(u); u != "" {
			list = append(list, nodeText{u, "the " + ordinal(len(list)+1) + " of the URLs"})
		}
	}
	return list
}

// ordinal returns "1st", "2nd".
func ordinal(n int) string {
	end := "th"
	if n%100/10 != 1 { // 11th, 12th, 13th
		switch n % 10 {
		case 1:
			end = "st"
		case 2:
			end = "nd"
		case 3:
			end = "rd"
		}
	}
	return strconv.Itoa(n) + end
}

// readNodes reads URLs that are separated by commas or line ends. A line that begins with # is a comment.
func readNodes(r io.Reader, name string) (list []nodeText, err error) {
	text, err := io.ReadAll(io.LimitReader(r, maxNodesFile))
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) { // editors on Windows begin a file with it
		number++
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			continue
		}
		for _, node := range splitNodes(line) {
			list = append(list, nodeText{node.url, fmt.Sprintf("line %d of %s", number, name)})
		}
	}
	if len(list) == 0 {
		return nil, errors.New("it names no node; write one URL per line")
	}
	return list, nil
}

// openNodes returns the nodes that the user asked for, and a function that stops the nodes it started.
func (f *clientFlags) openNodes(ctx context.Context) ([]redlock.Node, func(), error) {
	var list []nodeText
	var by string
	err := unlessEnded(ctx, func() (err error) {
		list, by, err = f.nodeList(os.Stdin)
		return err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case len(list) == 0 && os.Getenv(tokenEnv) != "":
		return nil, nil, usage("no nodes: this runs under redlock run, which takes %s out of the environment of its command; "+
			"give that redlock run --pass-nodes, or this command --nodes-file FILE", nodesEnv)
	case len(list) == 0:
		return nil, nil, usage("no nodes: give --nodes url,url,url or --nodes-file FILE, or set %s", nodesEnv)
	case len(list) == 1 && list[0].url == embeddedNodes:
		f.embedded = true
		started, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{})
		if err != nil {
			return nil, nil, &exitError{exitFailed, err}
		}
		return redlock.Nodes(started.URLs()...), func() { _ = started.Close() }, nil
	}
	var urls []string
	for _, node := range list {
		if problem := problemOfURL(node.url); problem != "" {
			return nil, nil, usage("%s: %s: %s", by, node.at, problem)
		}
		urls = append(urls, node.url)
	}
	f.list = list
	nodes := redlock.Nodes(urls...)
	if err := unlessEnded(ctx, func() error { return f.apply(nodes) }); err != nil {
		return nil, nil, err
	}
	return nodes, func() {}, nil
}

// severalURLs is a space with a part of another URL behind it, or a password that has a space.
var severalURLs = regexp.MustCompile(`\s\S*(://|@)`)

// problemOfURL says what is wrong with a URL, before the library sees it. Its error message would show a part of the
// password of some, or it would look for a host that nobody meant. No part of the URL is quoted.
func problemOfURL(raw string) string {
	if !strings.Contains(raw, "://") {
		raw = "redis://" + raw
	}
	_, host, _ := strings.Cut(raw, "://")
	host = host[strings.LastIndexByte(host, '@')+1:] // a password may have anything
	if i := strings.IndexAny(host, "/?#"); i >= 0 {
		host = host[:i]
	}
	switch {
	case strings.Contains(host, ";"):
		return "it has a semicolon; separate the URLs with commas"
	case strings.ContainsFunc(host, unicode.IsSpace), severalURLs.MatchString(raw):
		return "it has a space; separate the URLs with commas, and write %20 for a space in a password"
	case strings.Count(host, ":") > 1 && strings.Trim(host, "0123456789abcdefABCDEF:.") == "":
		return "write an IPv6 address in brackets: redis://[2001:db8::1]:6379"
	}
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "unix" && u.Host == "" && u.User == nil {
		return "" // a path, which may have an @
	}
	// If a password has an unescaped / or #, a part of it is where the port or the database should be.
	if err != nil || strings.Contains(u.Path+u.RawQuery+u.Fragment+u.Opaque+u.Scheme, "@") {
		return "not a URL; write redis://user:password@host:port, and escape the characters /?#%@: and the comma in a password: %2F and so on"
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
		return "its port is not 1 to 65535"
	}
	return ""
}

// nodeIndex is how the library names a node, where its error is about what was written.
var nodeIndex = regexp.MustCompile(`Nodes\[(\d+)\](?:\.URL)?`)

// located says in an error about nodes where they were written: the library numbers them from 0.
func (f *clientFlags) located(err error) error {
	if !isInvalid(err) || len(f.list) == 0 {
		return err
	}
	text := nodeIndex.ReplaceAllStringFunc(err.Error(), func(name string) string {
		if i, err := strconv.Atoi(nodeIndex.FindStringSubmatch(name)[1]); err == nil && i < len(f.list) {
			return f.list[i].at
		}
		return name
	})
	return &retoldError{text, err}
}

// othersMayRead reports whether the file is one that every user of this host may read. Windows does not say.
func othersMayRead(file *os.File) bool {
	about, err := file.Stat()
	return err == nil && runtime.GOOS != "windows" && about.Mode().IsRegular() && about.Mode().Perm()&0o004 != 0
}

// hasPassword reports whether one of the URLs has a login.
func hasPassword(list []nodeText) bool {
	return slices.ContainsFunc(list, func(n nodeText) bool { return strings.Contains(n.url, "@") })
}

// howToHide says how to keep other users from reading a file. A descriptor has no name that means it elsewhere.
func howToHide(path string) string {
	if strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/") {
		behind, err := os.Readlink(path)
		if err != nil || !filepath.IsAbs(behind) {
			return "take the right to read it from them (chmod 600 of the file that was opened)"
		}
		path = behind
	}
	return "chmod 600 " + path
}
