// The answers of the server, as far as these pages read them. A test compares every field with the
// OpenAPI document (tests/api/test_dashboard_client.py). Times are UTC seconds.

/**
 * @typedef {Object} JobView
 * @property {string} namespace
 * @property {string} name
 * @property {string} id
 * @property {string} kind
 * @property {string} queue
 * @property {number} priority
 * @property {string} phase
 * @property {string} reason
 * @property {string} message
 * @property {number} gpus
 * @property {number} gpus_held
 * @property {number} gpu_memory_mib
 * @property {number} ranks
 * @property {number} ranks_running
 * @property {number} attempt
 * @property {number} restarts
 * @property {number} failures
 * @property {number|null} failures_max
 * @property {number} submitted_at
 * @property {number} queued_at
 * @property {number|null} placed_at
 * @property {number|null} running_at
 * @property {number|null} finished_at
 * @property {number|null} retry_at
 * @property {boolean} deleting
 * @property {string[]} waits_for
 * @property {string} owner
 * @property {number|null} index
 * @property {ArrayView|null} array
 * @property {number|null} place_in_queue
 * @property {string} wait_message
 * @property {string} user
 */

/**
 * @typedef {Object} PreviewedJob
 * @property {string} job
 * @property {string} message
 * @property {number} gpus
 * @property {string[]} nodes
 */

/**
 * @typedef {Object} Preview
 * @property {string[]} summary
 * @property {PreviewedJob[]} starts
 * @property {PreviewedJob[]} stops
 * @property {PreviewedJob[]} moves
 * @property {PreviewedJob[]} ends
 */

/**
 * @typedef {Object} BulkResult
 * @property {string} job
 * @property {boolean} done
 * @property {string} message
 */

/**
 * @typedef {Object} BulkResults
 * @property {number} done
 * @property {number} refused
 * @property {BulkResult[]} items
 */

/**
 * @typedef {Object} JobCounts
 * @property {number} total
 * @property {Object<string, number>} phases
 */

/**
 * @typedef {Object} ArrayView
 * @property {string} indices
 * @property {number|null} limit
 * @property {number} total
 * @property {number} pending
 * @property {number} queued
 * @property {number} running
 * @property {number} suspended
 * @property {number} succeeded
 * @property {number} failed
 * @property {number} cancelled
 */

/**
 * @typedef {Object} JobDetail
 * @property {JobView} job
 * @property {FailureView|null} failure
 * @property {Object} spec
 * @property {AttemptView|null} attempt
 * @property {RestartView[]} restarts
 */

/**
 * @typedef {Object} FailureView
 * @property {number} rank
 * @property {string} name
 * @property {string} node
 * @property {number|null} exit_code
 * @property {string|null} cause
 * @property {string} message
 * @property {string[]} lines
 */

/**
 * @typedef {Object} AttemptView
 * @property {number} number
 * @property {string} state
 * @property {number} placed_at
 * @property {number|null} running_at
 * @property {number|null} ended_at
 * @property {RankView[]} ranks
 */

/**
 * @typedef {Object} RankView
 * @property {number} rank
 * @property {string} name
 * @property {string} role
 * @property {string} state
 * @property {string} node
 * @property {number[]} devices
 * @property {number} share
 * @property {number|null} started_at
 * @property {number|null} ended_at
 * @property {number|null} exit_code
 * @property {string|null} cause
 * @property {string} message
 */

/**
 * @typedef {Object} RestartView
 * @property {number} at
 * @property {number} attempt
 * @property {string} cause
 * @property {boolean} spends_budget
 * @property {string} message
 * @property {string} node
 * @property {number} lost_s
 */

/**
 * @typedef {Object} WhyAnswer
 * @property {string} summary
 * @property {Reason[]} reasons
 * @property {number|null} place_in_queue
 * @property {string[]} ahead
 * @property {number|null} planned_at
 * @property {Forecast|null} forecast
 */

/**
 * @typedef {Object} Reason
 * @property {string} code
 * @property {string} message
 * @property {string} helps
 */

/**
 * @typedef {Object} Forecast
 * @property {number|null} start_p50
 * @property {number|null} start_p90
 * @property {number|null} finish_p50
 * @property {number|null} finish_p90
 * @property {number} runs
 * @property {string} basis
 */

/**
 * @typedef {Object} NodeView
 * @property {string} name
 * @property {string} rack
 * @property {string} gpu_type
 * @property {number} gpu_memory_mib
 * @property {number} gpus
 * @property {number} gpus_free
 * @property {number} gpus_used
 * @property {boolean} ready
 * @property {boolean} cordoned
 * @property {string} message
 * @property {string[]} jobs
 * @property {Object<string, string>} resources
 * @property {Object<string, string>} resources_free
 * @property {SharedGpu[]} shared
 */

/**
 * @typedef {Object} SharedGpu
 * @property {number} device
 * @property {number} taken
 */

/**
 * @typedef {Object} QueueView
 * @property {string} name
 * @property {string} parent
 * @property {number|null} gpus_max
 * @property {number} gpus_used
 * @property {number} gpus_borrowed
 * @property {number} gpus_lent
 * @property {number} jobs_waiting
 * @property {number} jobs_unschedulable
 * @property {number|null} nominal
 * @property {number|null} borrow_max
 * @property {number|null} lend_max
 * @property {number} weight
 * @property {string} discipline
 * @property {number} rank
 * @property {Object[]} flavors
 * @property {Object[]} resources
 * @property {Object} preempt
 */

/**
 * @typedef {Object} EventView
 * @property {number} position
 * @property {number} at
 * @property {string} stream
 * @property {string} type
 * @property {Object} payload
 * @property {string} actor
 */

/**
 * @typedef {Object} StoryEvent
 * @property {number} position
 * @property {number} at
 * @property {string} type
 * @property {string} message
 * @property {string} actor
 */

/**
 * @typedef {Object} Story
 * @property {number} total
 * @property {StoryEvent[]} items
 */

/**
 * @typedef {Object} EventPage
 * @property {EventView[]} items
 * @property {number|null} next
 * @property {number} head
 */

/**
 * @typedef {Object} ClusterView
 * @property {string} kind
 * @property {string} description
 * @property {number} speed
 * @property {string} release
 */

/**
 * @typedef {Object} WaitingJob
 * @property {string} job
 * @property {string} queue
 * @property {number} place
 * @property {number} gpus
 * @property {number} queued_at
 * @property {string} message
 * @property {string} helps
 * @property {number|null} planned_at
 */

/**
 * @typedef {Object} WaitingLine
 * @property {number} total
 * @property {WaitingJob[]} items
 */

/**
 * @typedef {Object} CauseCount
 * @property {string} kind
 * @property {string} cause
 * @property {string} message
 * @property {number} count
 */

/**
 * @typedef {Object} Failures
 * @property {CauseCount[]} items
 */

/**
 * @typedef {Object} Moment
 * @property {number} position
 * @property {number} at
 */

/**
 * @typedef {Object} LogBounds
 * @property {Moment|null} first
 * @property {Moment|null} last
 * @property {number} now
 */

/**
 * @typedef {Object} Mark
 * @property {number} position
 * @property {number} at
 * @property {string} kind
 * @property {string} message
 * @property {string} job
 * @property {string} node
 */

/**
 * @typedef {Object} Marks
 * @property {number} from
 * @property {number} to
 * @property {number} bin_s
 * @property {number} total
 * @property {Object<string, number[]>} counts
 * @property {boolean} thinned
 * @property {Mark[]} items
 */

/**
 * @typedef {Object} Usage
 * @property {number} from
 * @property {number} to
 * @property {number} bin_s
 * @property {number[]} total
 * @property {number[]} productive
 * @property {number[]} starting
 * @property {number[]} held_idle
 * @property {number[]} down
 * @property {number[]} cordoned
 * @property {number[]} fragmented
 * @property {number[]} free
 * @property {number[]} waiting_gpus
 * @property {number[]} waiting_jobs
 * @property {number[]} starts
 * @property {Array<number|null>} wait_mean_s
 * @property {Array<number|null>} wait_max_s
 */

/**
 * @typedef {Object} Band
 * @property {number[]} p10
 * @property {number[]} p50
 * @property {number[]} p90
 */

/**
 * @typedef {Object} Range
 * @property {number|null} p10
 * @property {number|null} p50
 * @property {number|null} p90
 */

/**
 * @typedef {Object} JobOutlook
 * @property {string} job
 * @property {Range|null} start
 * @property {Range} end
 */

/**
 * @typedef {Object} Outlook
 * @property {number} made_at
 * @property {number} until
 * @property {number} runs
 * @property {number} total_gpus
 * @property {number} bin_s
 * @property {Band} used_gpus
 * @property {Band} waiting_gpus
 * @property {JobOutlook[]} jobs
 */

/**
 * @typedef {Object} TimelineJob
 * @property {string} name
 * @property {string} queue
 * @property {string} user
 * @property {string} kind
 * @property {number} gpus
 */

/**
 * @typedef {Object} TimelineNode
 * @property {string} name
 * @property {string} rack
 * @property {number} gpus
 */

/**
 * @typedef {Object} Bars
 * @property {number[]} job
 * @property {number[]} attempt
 * @property {number[]} node
 * @property {number[]} devices
 * @property {number[]} gpus
 * @property {number[]} from
 * @property {Array<number|null>} running
 * @property {Array<number|null>} to
 * @property {number[]} how
 */

/**
 * @typedef {Object} Waits
 * @property {number[]} job
 * @property {number[]} from
 * @property {Array<number|null>} to
 * @property {number[]} unschedulable
 */

/**
 * @typedef {Object} Outages
 * @property {number[]} node
 * @property {number[]} from
 * @property {Array<number|null>} to
 * @property {number[]} cordoned
 */

/**
 * @typedef {Object} Timeline
 * @property {number} origin
 * @property {number} to
 * @property {number} now
 * @property {TimelineJob[]} jobs
 * @property {TimelineNode[]} nodes
 * @property {string[]} ends
 * @property {Bars} bars
 * @property {number} bars_total
 * @property {Waits} waits
 * @property {number} waits_total
 * @property {Outages} outages
 */

/**
 * @typedef {Object} LogLines
 * @property {number} attempt
 * @property {number} rank
 * @property {string[]} lines
 */

/**
 * @typedef {Object} DeviceView
 * @property {string} node
 * @property {number} device
 * @property {string} job
 * @property {number|null} rank
 * @property {number} duty
 * @property {number} memory_used_mib
 * @property {number} memory_total_mib
 * @property {number} temperature_c
 * @property {number} power_w
 */

/**
 * @typedef {Object} StudyView
 * @property {string} id
 * @property {string} kind
 * @property {string} title
 * @property {number|null} at
 * @property {string} state
 * @property {number} done
 * @property {number} total
 * @property {number|null} seconds_left
 * @property {string} problem
 */

/**
 * @typedef {Object} Choice
 * @property {string} name
 * @property {string} description
 */

/**
 * @typedef {Object} StudyChoices
 * @property {Choice[]} disciplines
 * @property {Choice[]} packings
 * @property {string[]} faults
 * @property {number} gpus
 * @property {number} nodes
 */

/**
 * @typedef {Object} StudyFindings
 * @property {string[]} sentences
 */

/**
 * @typedef {Object} ForkResult
 * @property {Object} forked
 * @property {string[]} sentences
 * @property {boolean} is_exact
 * @property {Object} actual
 * @property {Object} control
 * @property {Object} changed
 */

/**
 * @typedef {Object} Readiness
 * @property {string} status
 * @property {string} role
 * @property {string} leader
 * @property {number} position
 */

/**
 * @typedef {Object} Errors
 * @property {number} count
 * @property {number|null} mean_error_s
 * @property {number|null} mean_lateness_s
 * @property {number|null} by_p50
 * @property {number|null} by_p90
 */

/**
 * @typedef {Object} Accuracy
 * @property {number} made
 * @property {Errors} starts
 * @property {Errors} finishes
 */

/**
 * @typedef {Object} Annotation
 * @property {string} id
 * @property {number} at
 * @property {string} text
 * @property {string} author
 * @property {string} about
 */

/**
 * @typedef {Object} AnnotationList
 * @property {Annotation[]} annotations
 * @property {string} kept_in
 */

/**
 * @typedef {Object} IncidentView
 * @property {string[]} sentences
 * @property {Object} analysis
 */

export {};
