BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE decisions (
	id INTEGER NOT NULL, 
	"plan" INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	decision TEXT NOT NULL, 
	CONSTRAINT pk_decisions PRIMARY KEY (id), 
	CONSTRAINT fk_decisions_plan FOREIGN KEY("plan") REFERENCES plans (id)
);
INSERT INTO "decisions" VALUES(1,1,'digits','{"job":"digits","action":"grow","current":null,"target":{"offer":"local-small","instances":2,"devices_used":1},"reason":"grow","figures":{"surplus_usd_per_hour":0.1},"release_first":false,"placement":null,"ground":"","note":""}');
CREATE TABLE durations (
	job TEXT NOT NULL, 
	offer TEXT NOT NULL, 
	what TEXT NOT NULL, 
	mean_seconds DOUBLE NOT NULL, 
	count INTEGER NOT NULL, 
	CONSTRAINT pk_durations PRIMARY KEY (job, offer, what), 
	CONSTRAINT fk_durations_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "durations" VALUES('digits','','join pause',2.0,1);
INSERT INTO "durations" VALUES('digits','local-small','start',12.5,1);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	at_seconds DOUBLE NOT NULL, 
	job TEXT, 
	kind TEXT NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (id)
);
INSERT INTO "events" VALUES(1,1800000003.0,'digits','resize','grow digits');
CREATE TABLE failures (
	id INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	instance TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	at_seconds DOUBLE NOT NULL, 
	failure TEXT NOT NULL, 
	CONSTRAINT pk_failures PRIMARY KEY (id), 
	CONSTRAINT fk_failures_job FOREIGN KEY(job) REFERENCES jobs (id), 
	CONSTRAINT uq_failures_job_instance_attempt UNIQUE (job, instance, attempt)
);
INSERT INTO "failures" VALUES(1,'text','text-0-1',1,1800000040.0,'{"instance":"text-0-1","attempt":1,"exit_code":1,"cause":"out of memory","signature":"oom","steps":7,"last_lines":["line 1","line 2"],"during_setup":false}');
CREATE TABLE incarnations (
	job TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	instance TEXT NOT NULL, 
	started_seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_incarnations PRIMARY KEY (job, number), 
	CONSTRAINT fk_incarnations_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "incarnations" VALUES('sweep-0',1,'sweep-0-0-1',1800000000.0);
CREATE TABLE instances (
	id TEXT NOT NULL, 
	job TEXT NOT NULL, 
	slot INTEGER NOT NULL, 
	generation INTEGER NOT NULL, 
	offer TEXT NOT NULL, 
	devices_used INTEGER NOT NULL, 
	usd_per_hour TEXT NOT NULL, 
	minimum_billed_seconds INTEGER NOT NULL, 
	desired VARCHAR(20) NOT NULL, 
	phase VARCHAR(20) NOT NULL, 
	requested_seconds DOUBLE NOT NULL, 
	cloud_id TEXT, 
	launched_seconds DOUBLE, 
	joined_seconds DOUBLE, 
	training_seconds DOUBLE, 
	draining_seconds DOUBLE, 
	ended_seconds DOUBLE, 
	seen_seconds DOUBLE, 
	reclaim_seconds DOUBLE, 
	facts TEXT NOT NULL, 
	report_started_seconds DOUBLE, 
	report_step INTEGER, 
	CONSTRAINT pk_instances PRIMARY KEY (id), 
	CONSTRAINT fk_instances_job FOREIGN KEY(job) REFERENCES jobs (id), 
	CONSTRAINT uq_instances_job_slot_generation UNIQUE (job, slot, generation)
);
INSERT INTO "instances" VALUES('digits-0-1','digits',0,1,'local-small',1,'0.0500',60,'present','training',1800000000.0,'i-digits-0-1',1800000001.0,1800000010.0,1800000010.0,NULL,NULL,1800000010.0,NULL,'{"image":"image:1"}',1800000000.0,100);
INSERT INTO "instances" VALUES('digits-1-1','digits',1,1,'local-small',1,'0.0500',60,'present','requested',1800000030.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}',NULL,NULL);
INSERT INTO "instances" VALUES('text-0-1','text',0,1,'local-small',1,'0.0500',60,'present','ended',1800000000.0,'i-text-0-1',1800000001.0,NULL,NULL,NULL,1800000100.0,NULL,NULL,'{}',NULL,NULL);
CREATE TABLE intents (
	id INTEGER NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	instance TEXT NOT NULL, 
	token TEXT NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	attempts INTEGER NOT NULL, 
	not_before_seconds DOUBLE NOT NULL, 
	error TEXT, 
	CONSTRAINT pk_intents PRIMARY KEY (id), 
	CONSTRAINT fk_intents_instance FOREIGN KEY(instance) REFERENCES instances (id), 
	CONSTRAINT uq_intents_instance_kind UNIQUE (instance, kind)
);
INSERT INTO "intents" VALUES(1,'launch','digits-0-1','token of digits-0-1','done',0,1800000000.0,NULL);
INSERT INTO "intents" VALUES(2,'launch','digits-1-1','token of digits-1-1','pending',0,1800000030.0,NULL);
INSERT INTO "intents" VALUES(3,'launch','text-0-1','token of text-0-1','done',0,1800000000.0,NULL);
CREATE TABLE jobs (
	number INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	phase VARCHAR(20) NOT NULL, 
	submitted_seconds DOUBLE NOT NULL, 
	started_seconds DOUBLE, 
	ended_seconds DOUBLE, 
	attempt INTEGER NOT NULL, 
	retry_seconds DOUBLE, 
	cause TEXT, 
	last_lines TEXT NOT NULL, 
	lighthouse TEXT, 
	report TEXT, 
	reported_seconds DOUBLE, 
	report_attempt INTEGER, 
	report_started_seconds DOUBLE, 
	CONSTRAINT pk_jobs PRIMARY KEY (number), 
	CONSTRAINT uq_jobs_id UNIQUE (id)
);
INSERT INTO "jobs" VALUES(1,'digits','digits','{"name":"digits","command":["python","train.py","--name","quote \" and ü"],"bundle":"abababababababababababababababababababababababababababababababab","environment":{"A":"1","B":""},"secrets":{"TOKEN":{"variable":"TOKEN","file":null},"KEY":{"variable":null,"file":"~/.k"}},"data":[{"source":"/datasets/digits","target":"data","read_only":false}],"setup":["pip install x","true"],"image":"image:1","batch":{"initial":64,"maximum":1024,"device_maximum":256,"adaptive":true,"kind_maxima":[]},"instances":{"minimum":1,"maximum":4,"offers":["local-small","local-large"],"spot":false,"maxima":[]},"objective":{"preference":"value_of_time","value_of_time_usd_per_hour":40.0,"deadline_seconds":1800000000.1,"budget_usd":"500.10","confidence":0.9,"after_deadline":"balanced"},"checkpoint":{"directory":"/checkpoints","interval_seconds":300.0,"keep":3},"total_examples":1000000000.0,"retries":0,"requested_devices":null,"program":null,"parallelism":{"pipeline":1,"microbatches":1,"near_instances":null},"priority":1.0,"person":null,"study":null,"distributed":false}','running',1800000000.0,1800000010.0,NULL,1,NULL,NULL,'[]','restart://host:7','{"step":100,"epoch":1,"progress_examples":6400.0,"total_examples":null,"batch":{"total":64,"device":64,"accumulation":0},"bounds":{"initial":64,"maximum":1024,"device_maximum":256,"adaptive":true,"kind_maxima":[]},"replicas":1,"devices":1,"learning_rate":0.001,"parameter_bytes":4000000000,"noise":{"initial_batch":64,"gradient_square":0.1,"gradient_variance":0.2,"log_standard_deviation":0.3},"goodput_measured":null,"observations":[],"pauses":[],"checkpoint":{"step":90,"seconds":0.5,"bytes":1000,"error":null,"pause_seconds":null},"metrics":{"loss":Infinity,"accuracy":0.1},"engine":"restart","quality":[]}',1800000020.0,1,1800000000.0);
INSERT INTO "jobs" VALUES(2,'text','text','{"name":"text","command":["python","train.py"],"bundle":null,"environment":{},"secrets":{},"data":[],"setup":[],"image":null,"batch":{"initial":null,"maximum":null,"device_maximum":null,"adaptive":false,"kind_maxima":[]},"instances":{"minimum":1,"maximum":1,"offers":null,"spot":true,"maxima":[]},"objective":{"preference":"balanced","value_of_time_usd_per_hour":null,"deadline_seconds":null,"budget_usd":null,"confidence":0.9,"after_deadline":"balanced"},"checkpoint":{"directory":null,"interval_seconds":null,"keep":2},"total_examples":null,"retries":3,"requested_devices":null,"program":null,"parallelism":{"pipeline":1,"microbatches":1,"near_instances":null},"priority":1.0,"person":null,"study":null,"distributed":false}','failed',1800000000.0,NULL,1800000100.0,1,NULL,'out of memory','["line 1","line 2"]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'sweep-0','sweep-0','{"name":"sweep-0","command":["python","train.py"],"bundle":null,"environment":{},"secrets":{},"data":[],"setup":[],"image":null,"batch":{"initial":null,"maximum":null,"device_maximum":null,"adaptive":false,"kind_maxima":[]},"instances":{"minimum":1,"maximum":1,"offers":null,"spot":true,"maxima":[]},"objective":{"preference":"balanced","value_of_time_usd_per_hour":null,"deadline_seconds":null,"budget_usd":null,"confidence":0.9,"after_deadline":"balanced"},"checkpoint":{"directory":null,"interval_seconds":null,"keep":2},"total_examples":null,"retries":3,"requested_devices":null,"program":null,"parallelism":{"pipeline":1,"microbatches":1,"near_instances":null},"priority":1.0,"person":null,"study":"sweep","distributed":false}','pending',1800000000.0,NULL,NULL,1,NULL,NULL,'[]',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE join_tokens (
	hash TEXT NOT NULL, 
	instance TEXT NOT NULL, 
	expires_seconds DOUBLE NOT NULL, 
	burned_seconds DOUBLE, 
	CONSTRAINT pk_join_tokens PRIMARY KEY (hash), 
	CONSTRAINT fk_join_tokens_instance FOREIGN KEY(instance) REFERENCES instances (id)
);
INSERT INTO "join_tokens" VALUES('0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a','digits-1-1',1800000900.0,NULL);
INSERT INTO "join_tokens" VALUES('0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b','digits-0-1',1800000900.0,1800000002.0);
CREATE TABLE leases (
	study TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	until_seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (study)
);
INSERT INTO "leases" VALUES('sweep','driver-1',1800000060.0);
CREATE TABLE ledger (
	id INTEGER NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	instance TEXT NOT NULL, 
	job TEXT NOT NULL, 
	offer TEXT NOT NULL, 
	usd_per_hour TEXT NOT NULL, 
	at_seconds DOUBLE NOT NULL, 
	minimum_billed_seconds INTEGER NOT NULL, 
	CONSTRAINT pk_ledger PRIMARY KEY (id), 
	CONSTRAINT fk_ledger_instance FOREIGN KEY(instance) REFERENCES instances (id), 
	CONSTRAINT fk_ledger_job FOREIGN KEY(job) REFERENCES jobs (id), 
	CONSTRAINT uq_ledger_instance_kind_at_seconds UNIQUE (instance, kind, at_seconds)
);
INSERT INTO "ledger" VALUES(1,'open','digits-0-1','digits','local-small','0.0500',1800000001.0,60);
INSERT INTO "ledger" VALUES(2,'open','text-0-1','text','local-small','0.0500',1800000001.0,60);
INSERT INTO "ledger" VALUES(3,'close','text-0-1','text','local-small','0.0500',1800000100.0,60);
CREATE TABLE models (
	job TEXT NOT NULL, 
	models TEXT NOT NULL, 
	CONSTRAINT pk_models PRIMARY KEY (job), 
	CONSTRAINT fk_models_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "models" VALUES('digits','{"cpu-core":{"device_kind":"cpu-core","point":{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},"draws":[{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5},{"alpha_compute_seconds":0.1,"beta_compute_seconds_per_example":0.01,"alpha_across_seconds":0.02,"beta_across_seconds_per_doubling":0.001,"alpha_within_seconds":0.01,"beta_within_seconds_per_doubling":0.0001,"gamma":1.5}],"measured":[[1,1],[2,4]],"size_errors":[],"batch_errors":null}}');
CREATE TABLE noise (
	id INTEGER NOT NULL, 
	job TEXT NOT NULL, 
	progress_examples DOUBLE NOT NULL, 
	noise TEXT NOT NULL, 
	CONSTRAINT pk_noise PRIMARY KEY (id), 
	CONSTRAINT fk_noise_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "noise" VALUES(1,'digits',6400.0,'{"initial_batch":64,"gradient_square":0.1,"gradient_variance":0.2,"log_standard_deviation":0.3}');
CREATE TABLE observations (
	job TEXT NOT NULL, 
	device_kind TEXT NOT NULL, 
	instances INTEGER NOT NULL, 
	devices INTEGER NOT NULL, 
	device_batch INTEGER NOT NULL, 
	accumulation INTEGER NOT NULL, 
	step_seconds DOUBLE NOT NULL, 
	sync_seconds DOUBLE NOT NULL, 
	steps DOUBLE NOT NULL, 
	updated_seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_observations PRIMARY KEY (job, device_kind, instances, devices, device_batch, accumulation), 
	CONSTRAINT fk_observations_job FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "observations" VALUES('digits','cpu-core',1,1,64,0,0.1,0.01,100.0,1800000020.0);
CREATE TABLE people (
	name TEXT NOT NULL, 
	token_hash TEXT NOT NULL, 
	CONSTRAINT pk_people PRIMARY KEY (name), 
	CONSTRAINT uq_people_token_hash UNIQUE (token_hash)
);
INSERT INTO "people" VALUES('ada','0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c');
CREATE TABLE pieces (
	sha256 TEXT NOT NULL, 
	content BLOB NOT NULL, 
	used_seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_pieces PRIMARY KEY (sha256)
);
INSERT INTO "pieces" VALUES('39cb44407de12014ecc4a08b1f98f24e20dad23448052f14754c8ffac661bb5b',X'789C5591DD6EC3200C855F65F27552B169DB455E658A100147B10A26E2A75D57E5DD07E9B2A45CA1CF071F7C7C073F8E1822745F7720031D58AF956DA353D6420373F0173218B64241C43129D628D36DC6C237E98F673CC8E61CF4A462459E5B834EB129D8E0853416BFD7ED2ECFC4D558CFB9D53E6011E568E48C414E3E576771121F42143E789F6444EDD9D40E27D10063BAFA7096C32D615C1F3DEAD0BD89ED545D406D15B978E8BB72474C2E3B3990B568F6E69FA5162715B0741A958DD8C05824BB607D9D39D18171B6B66656A78AC543D7E9E18F9867DDD23760C9517A64CFCAFDA7F7B285540D2815BC03A7BEEB7FA17B6FF6D53D2DAD5FFAE517FF1A9F7C',1800000000.0);
INSERT INTO "pieces" VALUES('cae7811fe1918c496214dd2c03c7ee36dd4444ab545257d5796ef4b1c58e87df',X'789CED944BAEC2300C45F7E271402D8249B75255919B5834223FE50308D4BD93F2AF780B78424C7D8F8E7C07F61984CF0BE102417306497B2588EF9495D0BC1206DE299B2602B51F900B677C4EC42309676584A65AD60C7A4A1F11F714381DD1784D135615EEE640115C8CEF8A6A7577CCA3AB42BADC6B65B757EE2539A834283B933C1699477F4826728BC62034F572333290010FC5D17E75CB5FB95FB9FF57AE636008630E541E4FDBD6ACEE58BB62EBAE04519D8853082E4CC759063D26313C27366B3D8E177053AE31',1800000000.0);
CREATE TABLE plans (
	id INTEGER NOT NULL, 
	tick INTEGER NOT NULL, 
	at_seconds DOUBLE NOT NULL, 
	document BLOB NOT NULL, 
	CONSTRAINT pk_plans PRIMARY KEY (id)
);
INSERT INTO "plans" VALUES(1,1,1800000000.0,X'789C6554ED6EA330107C95937FE72220262179837B86AA428BBD805B63A86D925651DFFD768126244542F2E7ECECEC78AF22381842DB4771BA0AD75FCA80AA773A88535A24CBB74D36A2AF6BF4B4FAF2BA11D674262EE3B7BEE2D155182D4E429B8677E878F5862A9A3332ECE0912EA35334131558A091A64367B023967D5D46D36139065D0EE8CBB61FBD38B9D1DA8DD008DA1A877756F37A35EA06235F21C47C9B268446076AA3E728C9F6B811504782FB815887FEDE08E342E44960829D71A61B3BCA79233AF89CC7F29EF41C340CAC52F4232EA7802520AC0AA26A198760A2012B4E7BB9024A934C722A67A3B0BCAD66F99E286A18669566D877E374F9801DC68AC48EA85785391CE76F2A8CC70E28AE6B4AFC846EB09CD13F5282A87C3167748B4EC996B26BD16A663A654692D85E81FD1B3AB0563C8892FE300E749B243BA544267A0AC5935990AED7685940DA72BD09B8D2A05C4461251A0FDA308FF03182C785CA6DF50CDEC052B68CDCD53725D3D0E075C91C209ADEF1E68EF5B818C2A574276301715B0933EB1162EF57AB2B3122F878DFB83E647FDA6D13C2D717B4F6D96E1D4218D798BB497AD5A27A1F7AE356A0CF1BF4A327A33F4252A00B9887AA4E172F689A36DE32F91829199C5598AA32D3192C28EC48BA9B3329845193FC10E354A3E5CE133E8B431AF07491634D6106532DB8E6F7F264CD6750AE3C89E34A981E7B3977832543B2746C6F9C7DDF50F4B072E9C468F24DA946CF8F603ECA1E2D3D2A0BA60BBF5A0259C85235E7EE0381DBC713D31047FDF533E9BDA6D6F394CD375D1D1D9CC158A82C057E59AC60C137285E592812D9DD6FED27B296725CB2E62006C3F24AF930ABAF5199406E5D9A636841534B1DBC591ACD14E5CFAD9CF40EE87203C3ADF9CD01276D5216274E2104FCE121138386CAFBCB4C1DF877243B88DD515552CAE4A031CD9254A2521292A24AEB63516712B34483CE765216499ED5A93CE45215750D6ABF4FAB2AAFC4FD55BF08057828D2B4C6F498164A1EF7592AB5CE54B25307C4DD5E6B0A25A1CA659EE5079D1F8E7BAC6595AABCC0E2A06BF1FAFD1F9BB02E1E');
CREATE TABLE programs (
	program TEXT NOT NULL, 
	memory TEXT NOT NULL, 
	CONSTRAINT pk_programs PRIMARY KEY (program)
);
INSERT INTO "programs" VALUES('digits','{"program":"digits","jobs":2,"recent_jobs":["digits-2","digits"],"updated_seconds":1800000000.0,"initial_batch":64,"parameter_bytes":4000000000,"bounds":{"initial":64,"maximum":1024,"device_maximum":256,"adaptive":true,"kind_maxima":[]},"total_examples":1000000000.0,"observations":[{"device_kind":"cpu-core","instances":1,"devices":1,"device_batch":64,"accumulation":0,"step_seconds":0.1,"sync_seconds":0.01,"steps":100},{"device_kind":"cpu-core","instances":2,"devices":2,"device_batch":64,"accumulation":0,"step_seconds":0.1,"sync_seconds":0.01,"steps":100}],"noise":{"progress_examples":[1.0,10.0],"noise_examples":[500.0,700.0]},"start_seconds":{"local-small":12.5},"parallelism":{"pipeline":1,"microbatches":1,"near_instances":null}}');
CREATE TABLE refusals (
	offer TEXT NOT NULL, 
	error_kind TEXT NOT NULL, 
	in_a_row INTEGER NOT NULL, 
	until_seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_refusals PRIMARY KEY (offer)
);
CREATE TABLE settings (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_settings PRIMARY KEY ("key")
);
INSERT INTO "settings" VALUES('controller_id','1f0c2d34-5b6a-4c7d-8e9f-0a1b2c3d4e5f');
INSERT INTO "settings" VALUES('frozen','1800000050.0 owner');
CREATE TABLE studies (
	name TEXT NOT NULL, 
	terms TEXT NOT NULL, 
	budget_usd TEXT, 
	CONSTRAINT pk_studies PRIMARY KEY (name)
);
INSERT INTO "studies" VALUES('sweep','{"objective":{"preference":"balanced","value_of_time_usd_per_hour":null,"deadline_seconds":null,"budget_usd":"12.50","confidence":0.9,"after_deadline":"balanced"},"directions":["minimize"],"to_begin":3,"full_work":null,"synchronous":false,"later":[],"best":null}',NULL);
CREATE TABLE trial_calls (
	id INTEGER NOT NULL, 
	study TEXT NOT NULL, 
	job TEXT NOT NULL, 
	incarnation INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	text TEXT NOT NULL, 
	answer TEXT, 
	CONSTRAINT pk_trial_calls PRIMARY KEY (id), 
	CONSTRAINT fk_trial_calls_job FOREIGN KEY(job) REFERENCES jobs (id), 
	CONSTRAINT uq_trial_calls_job_incarnation_number UNIQUE (job, incarnation, number)
);
INSERT INTO "trial_calls" VALUES(1,'sweep','sweep-0',1,1,'report 0.5','go on');
INSERT INTO "trial_calls" VALUES(2,'sweep','sweep-0',1,2,'report 0.6',NULL);
CREATE TABLE trials (
	id INTEGER NOT NULL, 
	study TEXT NOT NULL, 
	job TEXT NOT NULL, 
	record TEXT NOT NULL, 
	CONSTRAINT pk_trials PRIMARY KEY (id), 
	CONSTRAINT fk_trials_job FOREIGN KEY(job) REFERENCES jobs (id), 
	CONSTRAINT uq_trials_job UNIQUE (job)
);
INSERT INTO "trials" VALUES(1,'sweep','sweep-0','{"stands":{"job":"sweep-0","progress":2.0,"decided_at":null,"features":{},"reports":[],"pauses":false,"has_ended":false},"told_seconds":1800000005.0,"trained":{"offer":"local-small","instances":1,"devices_used":1},"speeds":[],"heard":[]}');
CREATE INDEX ix_jobs_name ON jobs (name);
CREATE UNIQUE INDEX ix_instances_held ON instances (job, slot) WHERE phase <> 'ended';
CREATE INDEX ix_intents_state ON intents (state);
CREATE INDEX ix_ledger_job ON ledger (job);
CREATE INDEX ix_noise_job ON noise (job);
CREATE INDEX ix_plans_at_seconds ON plans (at_seconds);
CREATE INDEX ix_pieces_used_seconds ON pieces (used_seconds);
CREATE INDEX ix_decisions_job_id ON decisions (job, id);
CREATE INDEX ix_decisions_plan ON decisions ("plan");
CREATE INDEX ix_events_at_seconds ON events (at_seconds);
CREATE INDEX ix_events_job_id ON events (job, id);
CREATE TRIGGER ledger_refuses_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_refuses_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE INDEX ix_trial_calls_waiting ON trial_calls (study, id) WHERE answer IS NULL;
CREATE INDEX ix_trials_study ON trials (study);
COMMIT;
