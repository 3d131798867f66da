package embeddedredis

import (
	"bufio"
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
)

// An interpreter is a Lua state for scripts. It runs one script at a time, of any server.
type interpreter struct {
	state  *lua.LState
	server *server.Server // of the running script
	peer   *server.Peer   // source of its commands
	sha    string

	refused []string // commands that the user may not use

	buffer bytes.Buffer // reply of a command
	out    *bufio.Writer
	in     *bufio.Reader
}

// protectGlobals is how Redis prevents scripts from creating globals, so that a script leaves nothing for the next one.
const protectGlobals = `
local dbg = debug
setmetatable(_G, {
  __newindex = function(t, n, v)
    error("Script attempted to create global variable '" .. tostring(n) .. "'", 2)
  end,
  __index = function(t, n)
    error("Script attempted to access nonexistent global variable '" .. tostring(n) .. "'", 2)
  end,
})
`

func newInterpreter() *interpreter {
	i := &interpreter{state: lua.NewState(lua.Options{SkipOpenLibs: true})}
	i.out, i.in = bufio.NewWriter(&i.buffer), bufio.NewReader(&i.buffer)
	l := i.state
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable},
		{lua.StringLibName, lua.OpenString}, {lua.MathLibName, lua.OpenMath},
	} {
		l.Push(l.NewFunction(library.open))
		l.Push(lua.LString(library.name))
		l.Call(1, 0)
	}
	redis := l.NewTable()
	for name, f := range map[string]lua.LGFunction{
		"call":         func(l *lua.LState) int { return i.call(true) },
		"pcall":        func(l *lua.LState) int { return i.call(false) },
		"error_reply":  func(l *lua.LState) int { return table(l, "err", errorText(l.CheckString(1))) },
		"status_reply": func(l *lua.LState) int { return table(l, "ok", l.CheckString(1)) },
	} {
		redis.RawSetString(name, l.NewFunction(f))
	}
	l.SetGlobal("redis", redis)
	if err := l.DoString(protectGlobals); err != nil {
		panic(err) // cannot happen: the script is a constant
	}
	l.SetTop(0)
	return i
}

// errorText returns an error in the form of Redis: with a code in front.
func errorText(s string) string {
	s = strings.TrimPrefix(s, "-")
	if !strings.Contains(s, " ") {
		return "ERR " + s
	}
	return s
}

// table pushes {field = value}: an error or a status.
func table(l *lua.LState, field, value string) int {
	t := l.CreateTable(0, 1)
	t.RawSetString(field, lua.LString(value))
	l.Push(t)
	return 1
}

func (i *interpreter) list(values []string) *lua.LTable {
	t := i.state.CreateTable(len(values), 0)
	for _, v := range values {
		t.Append(lua.LString(v))
	}
	return t
}

// call is redis.call, or redis.pcall, which returns errors instead of raising them.
func (i *interpreter) call(raise bool) int {
	l := i.state
	args := make([]string, l.GetTop())
	if len(args) == 0 {
		l.Error(lua.LString("Please specify at least one argument for this redis lib call script: "+i.sha+", &c."), 1)
	}
	for n := range args {
		switch a := l.Get(n + 1).(type) {
		case lua.LNumber:
			args[n] = a.String()
		case lua.LString:
			args[n] = string(a)
		default:
			l.Error(lua.LString("Lua redis lib command arguments must be strings or integers script: "+i.sha+", &c."), 1)
		}
	}
	if strconv.IntSize == 32 && len(args) == 3 && strings.EqualFold(args[0], "PEXPIREAT") {
		args = i.fromNow(args)
	}
	reply, err := i.dispatch(args)
	switch {
	case err == nil:
		l.Push(i.value(reply))
	case strings.Contains(err.Error(), "ERR unknown command") && raise:
		l.Error(lua.LString("Unknown Redis command called from script script: "+i.sha+", &c."), 1)
	case strings.Contains(err.Error(), "ERR unknown command"):
		return table(l, "err", "ERR Unknown Redis command called from script")
	case raise:
		l.Error(lua.LString(err.Error()), 1)
	default:
		return table(l, "err", err.Error())
	}
	return 1
}

// dispatch has miniredis execute a command.
func (i *interpreter) dispatch(args []string) (reply any, err error) {
	i.buffer.Reset()
	if slices.Contains(i.refused, strings.ToUpper(args[0])) {
		i.peer.WriteError(noPermission)
	} else {
		i.server.Dispatch(i.peer, args)
	}
	i.peer.Flush()
	i.in.Reset(&i.buffer)
	return server.ParseReply(i.in)
}

// fromNow is PEXPIREAT as PEXPIRE. miniredis reads numbers into an int, and the milliseconds since 1970 do not fit into one
// of 32 bits.
func (i *interpreter) fromNow(args []string) []string {
	at, err := strconv.ParseInt(args[2], 10, 64)
	reply, _ := i.dispatch([]string{"TIME"})
	now, isTime := reply.([]any)
	if err != nil || !isTime || len(now) != 2 {
		return args // miniredis says what is wrong with it
	}
	seconds, _ := strconv.ParseInt(now[0].(string), 10, 64)
	micros, _ := strconv.ParseInt(now[1].(string), 10, 64)
	return []string{"PEXPIRE", args[1], strconv.FormatInt(max(-1, at-seconds*1000-micros/1000), 10)}
}

// value converts the reply of a command for a script.
func (i *interpreter) value(reply any) lua.LValue {
	switch reply := reply.(type) {
	case nil:
		return lua.LFalse
	case int:
		return lua.LNumber(reply)
	case string:
		return lua.LString(reply)
	case server.Simple:
		t := i.state.CreateTable(0, 1)
		t.RawSetString("ok", lua.LString(reply))
		return t
	default:
		parts := reply.([]any)
		t := i.state.CreateTable(len(parts), 0) // NewTable would make room for 32 elements and 32 fields
		for _, part := range parts {
			t.Append(i.value(part))
		}
		return t
	}
}

// reply writes the result of a script.
func (i *interpreter) reply(peer *server.Peer, value lua.LValue) {
	switch v := value.(type) {
	case lua.LBool:
		if v {
			peer.WriteInt(1)
		} else {
			peer.WriteNull()
		}
	case lua.LNumber:
		// WriteInt takes an int, which may have 32 bits: too few for a server's TIME.
		peer.WriteRaw(":" + strconv.FormatInt(int64(v), 10) + "\r\n")
	case lua.LString:
		peer.WriteBulk(string(v))
	case *lua.LTable:
		if err := v.RawGetString("err"); err != lua.LNil {
			peer.WriteError(err.String())
			return
		}
		if ok := v.RawGetString("ok"); ok != lua.LNil {
			peer.WriteInline(ok.String())
			return
		}
		n := 0
		for v.RawGetInt(n+1) != lua.LNil {
			n++
		}
		peer.WriteLen(n)
		for part := 1; part <= n; part++ {
			i.reply(peer, v.RawGetInt(part))
		}
	default:
		peer.WriteNull()
	}
}

// contexts has, by database, the private context that miniredis gives to the peer of a script.
var contexts sync.Map

// nestedContext returns such a context for a script of this peer. Only miniredis can make one. So a script gets one
// from miniredis, once per database, and all others are copies.
func (s *ServerCommands) nestedContext(peer *server.Peer) any {
	var database int64
	if fields := reflect.Indirect(reflect.ValueOf(peer.Ctx)); fields.Kind() == reflect.Struct {
		database = fields.FieldByName("selectedDB").Int()
	}
	original, known := contexts.Load(database)
	if !known {
		asking := discardPeer()
		asking.ClientName = s.nonce
		s.server.Dispatch(asking, []string{"SELECT", strconv.FormatInt(database, 10)})
		s.asking.Lock()
		defer s.asking.Unlock()
		s.server.Dispatch(asking, []string{"EVAL", "redis.call('" + announcement + "', '" + s.nonce + "')", "0"})
		original = s.nested
		contexts.Store(database, original)
	}
	from := reflect.ValueOf(original).Elem()
	context := reflect.New(from.Type())
	context.Elem().Set(from)
	return context.Interface()
}
