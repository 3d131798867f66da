package redlock_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/redlock/internal/fleet"
)

// What a server saves, and what it is made to continue from.

type savedKey struct {
	name, text string
	fields     map[string]string  // of a hash
	scores     map[string]float64 // of a sorted set
	left       time.Duration      // 0: without expiry
}

// save saves the data, as Redis does in an RDB file.
func (s *server) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commands != nil {
		s.saveLocked(s.commands)
	}
}

func (s *server) saveLocked(running *fleet.ServerCommands) {
	s.saved, s.savedAt, s.savedOf = nil, s.nowLocked(), running.Identity().History
	s.redis.SetTime(s.savedAt)
	for _, name := range s.redis.Keys() {
		kind := s.redis.Type(name)
		if kind != "hash" && kind != "string" && name != fenceKey && !slices.Contains(sharedNames, name) {
			continue // a queue is only a hint
		}
		k := savedKey{name: name, left: s.redis.TTL(name)}
		if s.redis.Type(name) == "hash" {
			k.fields = map[string]string{}
			names, _ := s.redis.HKeys(name)
			for _, f := range names {
				k.fields[f] = s.redis.HGet(name, f)
			}
		} else if kind == "zset" {
			scores, _ := s.redis.SortedSet(name)
			k.scores = maps.Clone(scores) // it is the live one
		} else {
			k.text, _ = s.redis.Get(name)
		}
		s.saved = append(s.saved, k)
	}
}

const fenceKey = "redlock:fence"

// raiseFence stores this ballot in all fence slots of the server, as a program with its login could.
func (s *server) raiseFence(ballot uint64) {
	s.mu.Lock()
	scores, _ := s.redis.SortedSet(fenceKey)
	s.believed = maps.Clone(scores)
	s.mu.Unlock()
	args := []any{fenceKey}
	for slot := range 4096 {
		args = append(args, ballot, fmt.Sprint(slot))
	}
	s.tell("ZADD", args...)
}

// lowerFence puts right what raiseFence did, also in old data that came back.
func (s *server) lowerFence(ballot uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, _ := s.redis.SortedSet(fenceKey)
	for slot, score := range maps.Clone(stored) {
		if score != float64(ballot) {
			continue
		}
		s.redis.ZRem(fenceKey, slot)
		if before, ok := s.believed[slot]; ok {
			s.redis.ZAdd(fenceKey, before, slot)
		}
	}
}

// isUnnoticed reports whether a durable server is a promoted replica that no client has met. Restarted now, it would look
// like the node itself after a restart: docs/safety.md names this limit, so no world has it.
func (s *server) isUnnoticed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commands == nil || !s.world.has.durable {
		return false
	}
	is := s.commands.Identity()
	marker, _ := s.redis.Get("redlock:node")
	return is.Before != "" && !(strings.Contains(marker, is.RunID) && strings.Contains(marker, is.Before))
}

// tokens are the owners of the entries.
func (k savedKey) tokens() (all []string) {
	for entry := range k.scores {
		all = append(all, entry[strings.LastIndexByte(entry, ' ')+1:])
	}
	return all
}

func (k savedKey) restore(m *miniredis.Miniredis, age time.Duration) {
	if k.left > 0 && k.left <= age {
		return
	}
	for f, v := range k.fields {
		m.HSet(k.name, f, v)
	}
	for entry, score := range k.scores {
		_, _ = m.ZAdd(k.name, score, entry)
	}
	if k.fields == nil && k.scores == nil {
		_ = m.Set(k.name, k.text)
	}
	if k.left > 0 {
		m.SetTTL(k.name, k.left-age)
	}
}

// failBack makes the server a replica of a stale copy of itself, and a master again. The process stays the same; the
// data are those of the copy.
func (s *server) failBack() {
	s.mu.Lock()
	running := s.commands
	none := running == nil || s.savedOf == ""
	s.mu.Unlock()
	if none || !s.end() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked(true, s.promoted(running.Identity()))
}

// withDataOf has the server go on with the data of another node: as a replica of that one which was promoted, or restarted
// with a copy of its files.
func (s *server) withDataOf(of *server, restarted bool) {
	of.save()
	of.mu.Lock()
	saved, at, history := of.saved, of.savedAt, of.savedOf
	of.mu.Unlock()
	if history == "" || restarted && !s.end() {
		return
	}
	s.mu.Lock()
	s.saved, s.savedAt, s.savedOf = saved, at, history
	s.mu.Unlock()
	if restarted {
		s.start(true)
	} else {
		s.failBack()
	}
}

// failBackUnseen is failBack, but breaks no connection, as with Redis.
func (s *server) failBackUnseen() {
	s.mu.Lock()
	running := s.commands
	if running == nil || s.savedOf == "" {
		s.mu.Unlock()
		return
	}
	age := s.nowLocked().Sub(s.savedAt)
	args := []any{replaceAll, 0}
	for _, k := range s.saved {
		left := max(0, k.left-age).Milliseconds()
		if k.left > 0 && left == 0 {
			continue
		}
		s.revived[k.text] = true
		for _, entry := range k.tokens() {
			s.revived[entry] = true
		}
		if k.scores != nil {
			continue // replaceAll leaves these out: a copy may be older still
		}
		if k.fields == nil {
			args = append(args, k.name, "", k.text, left)
		}
		for f, v := range k.fields {
			args = append(args, k.name, f, v, left)
		}
	}
	running.Change(func(e *existence) { *e = s.promoted(*e) })
	s.mu.Unlock()
	s.tell("EVAL", args...)
}

// replaceAll replaces all data with these keys, in one step.
const replaceAll = `
redis.call('FLUSHALL')
for i = 1, #ARGV, 4 do
  if ARGV[i + 1] == '' then redis.call('SET', ARGV[i], ARGV[i + 2]) else redis.call('HSET', ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
  if ARGV[i + 3] ~= '0' then redis.call('PEXPIRE', ARGV[i], ARGV[i + 3]) end
end`
