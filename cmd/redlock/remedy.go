package main

import (
	"errors"
	"strings"

	"github.com/quorumlock/redlock"
)

// docsURL is where the documents are. Who installed the command has no copy of them.
const docsURL = "https://github.com/quorumlock/redlock/blob/main/docs/"

// A remedy is what to do about a problem that the library or a server reports without saying so.
type remedy struct {
	signs []string // the problem has one of these
	do    string   // "": the problem says it
}

var remedies = []remedy{
	{[]string{"its memory is full", "it cannot write to its disk", "it lacks replicas", "in protected mode"}, ""},
	{[]string{"NOPERM", "o permissions", "can't run this command", "can't access at least one of the keys"},
		docsURL + "operations.md has the rights that the user needs; if they are for keys with a prefix, give --prefix"},
	{[]string{"nknown command", "nknown Redis command"},
		"if its redis.conf has a rename-command for it, remove that line and forbid commands by ACLs; else the server is no Redis from 6.0 on"},
	{[]string{"WRONGPASS", "invalid password"},
		"check the user name and the password, and that the user is on; percent-encode what is special in a URL"},
	{[]string{"DB index is out of range", "invalid DB index"},
		"the server has no database of this number, which is the end of the URL: give another one, or raise its setting databases"},
	{[]string{"NOAUTH", "Authentication required"},
		"give the user and the password, in the URL or with --user and --password-file, which are for every node without a login in its URL"},
	{[]string{"without any password configured"},
		"the server has no password; leave it out"},
	{[]string{"connection refused"},
		"is redis-server running there, and is it bound to an address that this host reaches?"},
	{[]string{"too many open files"}, // EMFILE or ENFILE, of this process or its machine
		"that is a limit here and not at the server: raise it (ulimit -n, LimitNOFILE= of systemd), or find out who has so many files open"},
	{[]string{"cannot assign requested address"}, // EADDRNOTAVAIL
		"no local port or address is left for it here: find out who has so many connections to it (ss -tan), or raise net.ipv4.ip_local_port_range"},
	{[]string{"no such host"},
		"check the name of the host"},
	{[]string{"lookup "}, // the name server fails (SERVFAIL) or is silent
		"that is this host's name server and not the node: look at /etc/resolv.conf, give the node by its IP address, or raise --node-timeout"},
	{[]string{"did not answer within", "i/o timeout", "deadline exceeded", "no route to host", "network is unreachable", "not connected yet"},
		"is its process stopped or busy, or does a firewall drop what is sent there?"},
	{[]string{"possible server error"}, // a reply that is none in the protocol of Redis
		"what answers there is no Redis server: check the port"},
	{[]string{"nothing can judge that"},
		"mend the other nodes that do not answer; if all do, set the servers' clocks (NTP); its quarantine neither begins nor ends before that"},
	{[]string{"clocks of more nodes than have been reached"},
		"mend the other nodes that do not answer; if all do, set the servers' clocks (NTP)"},
	{[]string{"max number of clients"},
		"raise maxclients, or find out who opens so many connections (CLIENT LIST)"},
	{[]string{"LOADING "},
		"wait until the server has loaded its data"},
	{[]string{"NOREPLICAS "},
		"set min-replicas-to-write 0, because it needs none, unless it is the master of a Sentinel group, where you mend the replica"},
	{[]string{"MISCONF "},
		"the server cannot write its data to disk: look at its log, or switch off saving (save \"\")"},
	{[]string{"OOM "},
		"the server has no memory left below maxmemory: raise it, or move other data away"},
	{[]string{"broken pipe", "connection reset by peer", "closed the connection"}, // before it said anything
		"perhaps what answers there is no Redis server: check the port; with TLS, a server that has reached maxclients ends it so too"},
}

// remedyFor returns what to do about the problem, behind a semicolon; "" if its text says it, or nobody knows.
func remedyFor(problem string) string {
	for _, r := range remedies {
		for _, sign := range r.signs {
			switch {
			case !strings.Contains(problem, sign):
			case r.do == "":
				return ""
			default:
				return "; " + r.do
			}
		}
	}
	return ""
}

// withRemedy is the problem and what to do about it.
func withRemedy(problem string) string { return problem + remedyFor(problem) }

// flagOf is the flag for a field of redlock.Config on which the clients of the same nodes must agree.
var flagOf = map[string]string{"MaxTTL": "--max-ttl ", "Prefix": "--prefix ", "Durable": "--durable=", "NoFence": "--no-fence="}

// withFlags names in a problem the flags for the fields in which this command differs from the nodes, with the nodes' values.
func withFlags(problem string, err error) string {
	differs := (*redlock.ConfigError)(nil)
	if !errors.As(err, &differs) {
		return problem
	}
	there := ""
	for _, d := range differs.Differences {
		if flag := flagOf[d.Field]; flag != "" && d.There != "" {
			there += " " + flag + d.There
		}
	}
	start := strings.LastIndex(problem, "; set ")
	end := strings.LastIndex(problem, ", or, while none holds a lock")
	if there == "" || start < 0 || end < start {
		return problem
	}
	return problem[:start] + "; give" + there + problem[end:]
}
