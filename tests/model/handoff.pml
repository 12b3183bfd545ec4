/* handoff.pml: how a processor leaves a machine whose goroutine blocks or hogs it, and how that
   goroutine comes back: src/sched/ownership.cpp, handoff.cpp, preempt.cpp and the parts of
   machine_thread.cpp and enter.cpp that they stand on. tests/model/run_spin checks it exhaustively,
   and sees each of the mutants below fail.

   Two processors, two goroutines, three machines (one to spare), the monitor and a plain thread
   that wakes goroutines. What the scheduler's lock guards is one step here, because a thread
   without the lock does not look at it. Each access to what the lock does not guard, the seat's
   word and `inside`, is a step of its own. Memory is sequentially consistent here;
   tests/model/seat_test.cpp explores stores that become visible late. A machine that runs out of
   work lies down in one step here; idle_state_test.cpp explores which machine has to be woken.

   What must hold: no processor is used by two threads or lost; a goroutine is on one machine or in
   one queue; a loan is known to both sides; a token is consumed before the next one comes; and when
   no thread is about to do anything, no goroutine waits for a processor while one is idle. */

#ifndef NM
#define NM 3
#define NP 1
#endif
#define NG 2
#define NIL 7

#define FREE 0 /* the seat's word; questions of thieves change nothing here */
#define PENDING 1
#define YIELD 2
#define TAKEN 3

#define ON 0 /* where a goroutine is: on a machine, */
#define WAITING 1
#define WOKEN 2
#define SHARED 3

byte word[3], mp[3], lent[3], handed[3], handed_p[3], on[3];
bit inside[3], returned[3], spare[3], token[3];
bit user[3], asleep[3]; /* nothing is under way on this machine */
byte holder[2], lender[2];
bit idle[2];
byte users[2]; /* that touch what the processor owns, now */
byte place[NG], bound[NG];
bit paused[NG], blocking[NG];
bit monitor_busy;

#define SOME(q) (place[0] == q || place[1] == q)
#define ANY(g, q) if :: place[0] == q -> g = 0 :: place[1] == q -> g = 1 fi
#define ANY_IDLE (idle[0] || idle[1])
#define ANY_SPARE (spare[0] || spare[1] || spare[2])
#define AN_IDLE(p) if :: idle[0] -> p = 0 :: !idle[0] -> p = 1 fi
/* Machines are alike. */
#define A_SPARE(m) if :: spare[0] -> m = 0 :: !spare[0] && spare[1] -> m = 1 :: else -> m = 2 fi

inline wake(m1) {
#ifdef NO_TOKEN
  skip
#else
  assert(!token[m1]);
  token[m1] = 1
#endif
}

/* ownership.cpp, staff_locked; without a machine to spare it becomes idle. */
inline staff(p1) {
  if
  :: ANY_SPARE ->
     A_SPARE(s);
     spare[s] = 0;
     mp[s] = p1;
     holder[p1] = s;
     wake(s)
  :: else -> idle[p1] = 1
  fi
}

inline grant(p1, g1) {
  assert(handed[bound[g1]] == NIL);
  place[g1] = ON;
  handed[bound[g1]] = g1;
  handed_p[bound[g1]] = p1;
  wake(bound[g1])
}

inline end_loan(m1) {
#ifndef NO_END_LOAN
  if
  :: lent[m1] != NIL -> lender[lent[m1]] = NIL; lent[m1] = NIL
  :: else
  fi
#else
  skip
#endif
}

inline return_loan(p1) {
  assert(mp[lender[p1]] == NIL);
  lent[lender[p1]] = NIL;
  mp[lender[p1]] = p1;
  returned[lender[p1]] = 1;
  holder[p1] = lender[p1];
  lender[p1] = NIL
}

/* ownership.cpp, pass_on_locked. */
inline pass_on(p1) {
  holder[p1] = NIL;
  if
  :: SOME(WOKEN) -> staff(p1)
  :: !SOME(WOKEN) && lender[p1] != NIL -> return_loan(p1)
  :: !SOME(WOKEN) && lender[p1] == NIL && SOME(SHARED) ->
     ANY(h, SHARED);
     if
     :: paused[h] -> grant(p1, h)
     :: else -> staff(p1)
     fi
  :: else -> idle[p1] = 1
  fi
}

/* A machine that lies down looks for work once more, and so does a thread that makes some. Here
   that is one step. */
inline look_for_others() {
  do
  :: ANY_IDLE && ANY_SPARE && (SOME(WOKEN) || SOME(SHARED)) -> AN_IDLE(f); idle[f] = 0; staff(f)
  :: ANY_IDLE && !ANY_SPARE && SOME(SHARED) ->
     /* go_without_thread_locked */
     if
     :: place[0] == SHARED && paused[0] -> AN_IDLE(f); idle[f] = 0; grant(f, 0)
     :: place[1] == SHARED && paused[1] -> AN_IDLE(f); idle[f] = 0; grant(f, 1)
     :: else -> break
     fi
  :: else -> break
  od;
  f = 0; s = 0; h = 0
}

/* ownership.cpp, acquire_locked. */
inline acquire(m1) {
  if
  :: returned[m1] -> returned[m1] = 0; got = 1
  :: else ->
     end_loan(m1);
     if
     :: ANY_IDLE -> AN_IDLE(f); idle[f] = 0; mp[m1] = f; holder[f] = m1; f = 0; got = 1
     :: else
     fi
  fi;
  if
  :: got -> word[m1] = FREE
  :: else
  fi
}

proctype machine(byte m) {
  byte g = NIL;
  byte f = 0, s = 0, h = 0; /* scratch */
  byte back = 0;
  bit got = 0;

  /* machine_thread.cpp, find_work. */
find_work:
  atomic {
    if
    :: mp[m] == NIL -> goto lie_down
    :: mp[m] != NIL && SOME(WOKEN) -> ANY(g, WOKEN)
    :: mp[m] != NIL && !SOME(WOKEN) && lender[mp[m]] != NIL ->
       f = mp[m]; mp[m] = NIL; return_loan(f); f = 0; goto lie_down
    :: mp[m] != NIL && !SOME(WOKEN) && lender[mp[m]] == NIL && SOME(SHARED) -> ANY(g, SHARED)
    :: else ->
       /* theft.cpp, rob_returned: a processor whose machine has not noticed that it is back. */
       if
       :: holder[0] != NIL && returned[holder[0]] && mp[holder[0]] == 0 -> assert(!users[0])
       :: holder[1] != NIL && returned[holder[1]] && mp[holder[1]] == 1 -> assert(!users[1])
       :: else
       fi;
       /* sleep.cpp, sleep_idle; only the processor lies down, because any thread may take it. */
       f = mp[m]; mp[m] = NIL; holder[f] = NIL; idle[f] = 1; f = 0; goto lie_down
    fi;
    if
    :: paused[g] -> f = mp[m]; mp[m] = NIL; holder[f] = NIL; grant(f, g); f = 0; g = NIL; goto lie_down
    :: else -> place[g] = ON; on[m] = g; goto leave
    fi
  };

lie_down:
  atomic { spare[m] = 1; asleep[m] = 1; look_for_others() };
end_spare:
  atomic { token[m] -> token[m] = 0; asleep[m] = 0; if :: word[m] == TAKEN -> word[m] = FREE :: else fi };
  goto find_work;

leave:
  atomic { user[m] = 1; inside[m] = 0 };
end_user:
  if
#ifdef NO_INSIDE
  :: atomic { user[m] = 0; goto handler_settled }
#else
  :: atomic { user[m] = 0; inside[m] = 1; goto handler }
#endif
  :: atomic { user[m] = 0; inside[m] = 1 }
  fi;

  /* enter.cpp, enter_slow. */
enter:
  if
  :: atomic { word[m] == FREE -> goto entered }
  :: atomic { word[m] == YIELD -> word[m] = FREE; goto entered }
  :: atomic { word[m] == PENDING -> inside[m] = 0 }; inside[m] = 1; goto enter
  :: atomic {
       word[m] == TAKEN ->
       acquire(m);
       blocking[g] = 0;
       if
       :: got -> got = 0; goto entered
       :: else -> place[g] = WOKEN; on[m] = NIL; g = NIL; goto lie_down
       fi
     }
  fi;

entered:
  atomic { assert(mp[m] != NIL && holder[mp[m]] == m && !idle[mp[m]]); assert(!users[mp[m]]); users[mp[m]]++ };
  atomic {
    users[mp[m]]--;
    assert(!returned[m] && lent[m] == NIL && word[m] != TAKEN);
    if
    :: goto leave
    :: place[g] = WAITING; on[m] = NIL; g = NIL; goto find_work
    :: place[g] = SHARED; on[m] = NIL; g = NIL; goto find_work /* order.cpp, pass_turn */
    :: back = 1
    fi
  };

  /* handoff.cpp, give_up_seat; then begin_blocking, or preempt.cpp, pause_or_go_on. */
handler:
  if
  :: atomic { word[m] == YIELD || word[m] == FREE -> word[m] = TAKEN }
  :: word[m] == TAKEN
  :: atomic { word[m] == PENDING -> inside[m] = 0 }; inside[m] = 1; goto handler
  fi;
handler_settled:
  atomic {
    if
    :: back == 1 -> /* blocking(f): pass_on_own */
       back = 0;
       blocking[g] = 1;
#ifndef BLOCKING_KEEPS_LOAN
       end_loan(m);
       returned[m] = 0;
#endif
       if
       :: mp[m] != NIL -> f = mp[m]; mp[m] = NIL; pass_on(f); look_for_others()
       :: else
       fi;
       goto leave
    :: back == 0 && mp[m] == NIL && blocking[g] -> goto leave
    :: back == 0 && mp[m] == NIL && !blocking[g] ->
       acquire(m);
       if
       :: got -> got = 0; goto leave
       :: else
       fi;
       if
       :: place[g] = SHARED
       :: place[g] = WOKEN
       fi
    :: back == 0 && mp[m] != NIL -> returned[m] = 0; word[m] = FREE; goto leave /* none waits */
    :: back == 0 && mp[m] != NIL && !ANY_IDLE && (SOME(WOKEN) || SOME(SHARED)) ->
       f = mp[m];
       returned[m] = 0;
       mp[m] = NIL;
#ifdef PUSH_AFTER_PASS_ON
       pass_on(f);
       place[g] = SHARED
#else
       place[g] = SHARED; paused[g] = 1; bound[g] = m;
       pass_on(f)
#endif
    fi;
    paused[g] = 1;
    bound[g] = m;
    f = 0; s = 0; h = 0;
    asleep[m] = 1
#ifndef PUSH_AFTER_PASS_ON
    ; look_for_others()
#endif
  };
end_paused:
  atomic {
    token[m] -> token[m] = 0;
    asleep[m] = 0;
    assert(handed[m] == g && mp[m] == NIL);
    handed[m] = NIL;
    mp[m] = handed_p[m];
    handed_p[m] = NIL;
    word[m] = FREE;
    holder[mp[m]] = m;
    paused[g] = 0;
    bound[g] = NIL;
    blocking[g] = 0;
    goto leave
  }
}

/* handoff.cpp, retake: monitor and resize. */
proctype monitor() {
  byte p = 0, m = NIL, f = 0, s = 0, h = 0;
  bit loan = 0, plea = 0;
end:
  do
  :: atomic {
       if
       :: holder[0] != NIL -> p = 0
       :: holder[1] != NIL -> p = 1
       fi;
       m = holder[p];
       monitor_busy = 1;
       if :: loan = 0 :: loan = 1 fi;
       if
       :: returned[m] && mp[m] == p -> returned[m] = 0; goto detached
       :: else
       fi
     };
     /* seat.hpp, claim */
     atomic {
       if
       :: word[m] == FREE -> word[m] = PENDING
       :: word[m] == YIELD -> word[m] = PENDING; plea = 1
       :: else -> goto done
       fi
     };
     if
     :: !inside[m]
#ifdef NO_LOOK_INSIDE
     :: inside[m]
#else
     :: atomic { inside[m] -> if :: word[m] = YIELD :: !plea -> word[m] = FREE fi; goto done }
#endif
     fi;
     atomic {
#ifndef NO_RECHECK
       if
       :: mp[m] != p -> word[m] = FREE; goto done
       :: else
       fi;
#endif
       assert(!users[p]);
       word[m] = TAKEN;
detached:
       mp[m] = NIL;
       if
       :: loan ->
          if
          :: lender[p] != NIL -> lent[lender[p]] = NIL
          :: else
          fi;
          lent[m] = p;
          lender[p] = m;
          holder[p] = NIL;
          if
          :: ANY_SPARE -> staff(p)
          :: else -> return_loan(p)
          fi
       :: else -> pass_on(p); look_for_others()
       fi
     };
done:
     atomic { m = NIL; p = 0; f = 0; s = 0; h = 0; plea = 0; loan = 0; monitor_busy = 0 }
  od
}

/* A plain thread: park.cpp, ready; wake.cpp, inject. */
proctype outside() {
  byte g = 0, f = 0, s = 0, h = 0;
end:
  do
  :: atomic { SOME(WAITING) -> ANY(g, WAITING); place[g] = WOKEN; look_for_others(); g = 0 }
  od
}

#define LOANS_WELL(m) (lent[m] == NIL || lender[lent[m]] == m)
#define LENDER_WELL(p) (lender[p] == NIL || lent[lender[p]] == p)
#define HOLDERS(p) ((mp[0] == p) + (mp[1] == p) + (mp[2] == p))
#define QUIET_M(m) ((user[m] && !inside[m]) || (asleep[m] && !token[m]))
#define QUIET (QUIET_M(0) && QUIET_M(1) && QUIET_M(2) && !monitor_busy)
#define PROCESSOR_WELL(p) ((HOLDERS(p) == 1 && mp[holder[p]] == p && !idle[p]) || (HOLDERS(p) == 0 && idle[p]))
#define IS_ON(g) (on[0] == g || on[1] == g || on[2] == g)
#define GOROUTINE_WELL(g) ((place[g] == ON && IS_ON(g) && !paused[g]) || (place[g] == WAITING && !IS_ON(g)) || \
                           (place[g] >= WOKEN && (paused[g] || !IS_ON(g))))
#define RESTS (ANY_IDLE && (ANY_SPARE && (SOME(WOKEN) || SOME(SHARED)) || \
                            place[0] == SHARED && paused[0] || place[1] == SHARED && paused[1]))

proctype check() {
end:
  atomic {
    !(LOANS_WELL(0) && LOANS_WELL(1) && LOANS_WELL(2) && LENDER_WELL(0) && LENDER_WELL(1)) ||
    HOLDERS(0) > 1 || HOLDERS(1) > 1 ||
    (QUIET && !(PROCESSOR_WELL(0) && (NP == 1 || PROCESSOR_WELL(1)) && GOROUTINE_WELL(0) && GOROUTINE_WELL(1))) ||
    (QUIET && RESTS) -> assert(false)
  }
}

init {
  atomic {
    byte i = 0;
    do
    :: i < 3 ->
       mp[i] = NIL; lent[i] = NIL; handed[i] = NIL; handed_p[i] = NIL; on[i] = NIL; inside[i] = 1; i++
    :: else -> break
    od;
    mp[0] = 0; holder[0] = 0; holder[1] = NIL;
#if NP == 2
    mp[1] = 1; holder[1] = 1;
#endif
    lender[0] = NIL; lender[1] = NIL;
    place[0] = WOKEN; place[1] = WOKEN; bound[0] = NIL; bound[1] = NIL;
    run machine(0); run machine(1);
#if NM == 3
    run machine(2);
#else
    asleep[2] = 1;
#endif
    run monitor(); run outside(); run check()
  }
}
